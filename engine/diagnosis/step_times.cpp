#include "engine/diagnosis/step_times.h"

#include "base/fork.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace hindcast::engine {
namespace {

using codegen::Step;
using Clock = std::chrono::steady_clock;

struct Times {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
  std::map<std::pair<uint32_t, std::string>, StepTime> by_step;
};
Times& times() {
  static auto* times = new Times;
  return *times;
}

double us_since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }

double bytes_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided ? static_cast<double>(tensor.nbytes()) : 0;
}

double bytes_read(const Step& step, const codegen::Slots& slots) {
  double bytes = 0;
  const auto add = [&](codegen::SlotUse use) {
    if (use.slot != codegen::kNoSlot) bytes += bytes_of(slots[use.slot]);
  };
  for (const auto& arg : step.args) std::for_each(arg.slots.begin(), arg.slots.end(), add);
  std::for_each(step.inputs.begin(), step.inputs.end(), add);
  return bytes;
}

std::string name_of(const Step& step, const capture::BackwardGraph& graph) {
  if (step.op) return step.op->operator_name().name;
  if (step.call_op) return step.call_op->describe();
  if (step.kind == capture::InstrKind::AddGrads) return "sum of gradients";
  switch (graph.event_of(graph.instrs[step.instr]).kind) {
    case capture::EventKind::Accumulate:
      return "AccumulateGrad";
    case capture::EventKind::Hook:
      return "hooks";
    case capture::EventKind::CallNode:
      return "a node called as itself";
    default:
      return "bookkeeping";
  }
}

}  // namespace

void StepClock::start(const Step& step, const codegen::Slots& slots) {
  end_step(slots);
  laps_.push_back({&step, 0, bytes_read(step, slots)});
  started_ = Clock::now();
}

void StepClock::end_step(const codegen::Slots& slots) {
  if (laps_.empty() || laps_.back().us != 0) return;
  Lap& lap = laps_.back();
  if (backend_ != nullptr) backend_->synchronize();
  lap.us = us_since(started_);
  for (const uint32_t slot : lap.step->outputs) {
    if (slot != codegen::kNoSlot) lap.bytes += bytes_of(slots[slot]);
  }
}

void StepClock::finish() {
  const std::lock_guard lock(times().mutex);
  for (const Lap& lap : laps_) {
    StepTime& time = times().by_step[{graph_.id, name_of(*lap.step, graph_)}];
    time.name = name_of(*lap.step, graph_);
    time.graph = graph_.id;
    time.backend = backend_;
    time.calls += 1;
    time.us += lap.us;
    time.bytes += lap.bytes;
  }
  laps_.clear();
}

std::vector<StepTime> costliest_steps(size_t count) {
  std::vector<StepTime> steps;
  {
    const std::lock_guard lock(times().mutex);
    for (const auto& [key, time] : times().by_step) steps.push_back(time);
  }
  std::sort(steps.begin(), steps.end(), [](const StepTime& a, const StepTime& b) { return a.us > b.us; });
  if (steps.size() > count) steps.resize(count);
  return steps;
}

void reset_step_times() {
  const std::lock_guard lock(times().mutex);
  times().by_step.clear();
}

}  // namespace hindcast::engine
