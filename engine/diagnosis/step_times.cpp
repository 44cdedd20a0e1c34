#include "engine/diagnosis/step_times.h"

#include "base/fork.h"
#include "base/format.h"
#include "base/trace.h"
#include "capture/backward/backward_graph.h"

#include <c10/core/impl/VirtualGuardImpl.h>

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
  static constinit base::MadeOnce<Times> times;
  return times.get();
}

double us_since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }

double bytes_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided ? static_cast<double>(tensor.nbytes()) : 0;
}

// True for view ops, which move no bytes.
bool is_view(const Step& step) {
  if (step.kind != capture::InstrKind::Op || !step.op || step.op->schema().returns().empty()) return false;
  const auto* const alias = step.op->schema().returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
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

// Only plans of backwards have events.
std::string name_of(const Step& step, const capture::Graph& graph) {
  if (step.op) return step.op->operator_name().name;
  if (step.call_op) return step.call_op->describe();
  if (step.kind == capture::InstrKind::AddGrads) return "sum of gradients";
  switch (static_cast<const capture::BackwardGraph&>(graph).event_of(graph.instrs[step.instr]).kind) {
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

bool is_logged() { return base::is_for_output(base::Channel::Perf, base::Level::Info); }

// Measuring held bytes visits all slots, so long plans are measured only after some of their steps.
constexpr size_t kMostLooks = 512;

}  // namespace

bool StepClock::is_captured(const codegen::Plan& plan) {
  const auto* const backend = codegen::backend_of(plan.graph());
  return backend != nullptr && backend->is_captured(c10::impl::VirtualGuardImpl(backend->device()).getDevice()).value_or(false);
}

StepClock::StepClock(const codegen::Plan& plan)
    : plan_(plan),
      backend_(codegen::backend_of(plan.graph())),
      copy_bandwidth_(backend_ != nullptr && is_logged() ? backend_->copy_bandwidth() : 0),
      looks_(base::tracing() && wants_held_bytes(plan)),
      looks_every_(std::max<size_t>(1, (plan.steps().size() + kMostLooks - 1) / kMostLooks)) {}

void StepClock::look_at_held(int64_t step, const codegen::Slots& slots) { held_.push_back({step, held_bytes(slots)}); }

void StepClock::start(const Step& step, const codegen::Slots& slots) {
  if (laps_.empty() && looks_) look_at_held(-1, slots);
  end_step(slots);
  laps_.push_back({&step, 0, is_view(step) ? 0 : bytes_read(step, slots)});
  started_ = Clock::now();
}

void StepClock::end_step(const codegen::Slots& slots) {
  if (laps_.empty() || laps_.back().us != 0) return;
  Lap& lap = laps_.back();
  if (backend_ != nullptr) backend_->synchronize();
  lap.us = us_since(started_);
  for (const uint32_t slot : lap.step->outputs) {
    if (is_view(*lap.step)) break;
    if (slot != codegen::kNoSlot) lap.bytes += bytes_of(slots[slot]);
  }
  if (looks_ && laps_.size() % looks_every_ == 0) look_at_held(lap.step - plan_.steps().data(), slots);
}

void StepClock::finish() {
  if (base::tracing()) record_run(plan_, laps_, held_, name_of);
  if (is_logged()) {
    log_steps();
    sum_up();
  }
  laps_.clear();
  held_.clear();
}

// One line for each step that computes. A step that threw has no time.
void StepClock::log_steps() const {
  const auto& graph = plan_.graph();
  std::string lines;
  for (const Lap& lap : laps_) {
    if (lap.us == 0 || lap.step->kind == capture::InstrKind::Event || is_view(*lap.step)) continue;
    if (!lines.empty()) lines += '\n';
    lines += base::format("graph {}: {}: {:.1f} KiB in {:.2f} us", graph.id, name_of(*lap.step, graph), lap.bytes / 1024, lap.us);
    if (copy_bandwidth_ > 0) lines += base::format(", {:.1f}% of a copy's bandwidth", 100 * lap.bytes / lap.us / copy_bandwidth_);
  }
  if (!lines.empty()) base::write_output(base::Channel::Perf, base::Level::Info, lines);
}

void StepClock::sum_up() const {
  const auto& graph = plan_.graph();
  const std::lock_guard lock(times().mutex);
  for (const Lap& lap : laps_) {
    StepTime& time = times().by_step[{graph.id, name_of(*lap.step, graph)}];
    time.name = name_of(*lap.step, graph);
    time.graph = graph.id;
    time.backend = backend_;
    time.calls += 1;
    time.us += lap.us;
    time.bytes += lap.bytes;
  }
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
