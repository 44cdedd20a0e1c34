#include "engine/call/record.h"

#include "base/format.h"
#include "base/log.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/step_times.h"
#include "engine/options/use_options.h"

#include <stdexcept>

namespace hindcast::engine {
namespace {

void require(const Found& found, const std::string& why_not) {
  if (why_not.empty()) return;
  throw std::runtime_error(base::format("hindcast::Options::require_cuda_graph: graph {} is not replayed as one CUDA graph: {}",
                                        found.plan->graph().id, why_not));
}

// Why the plan as captured is final; nullptr if the plan has kernels, or may still get them.
const char* why_it_stays_as_captured(const Found& found, const Options& options) {
  switch (replay_of(options.compiler)) {
    case Replay::Eager:
      return "compilers::eager() runs it op by op";
    case Replay::Compiled:
      return "Options::compiler runs it";
    case Replay::Kernels:
      if (found.plan->graph().bitwise) return "equal bits are asked for, so that it runs op by op";
      break;
    case Replay::GroupsThroughAten:
      break;
  }
  // A better plan may have come since this one was found.
  const PlanSlot& slot = found.variant->slot();
  return slot.is_compiled() && slot.plan() == found.plan ? "it runs op by op, as it was captured" : nullptr;
}

// Why the host must act between steps, whatever the plan is; nullptr if it need not.
const char* why_steps_are_looked_at(const Options& options) {
  if (options.nan_guard) return "Options::nan_guard looks at each gradient";
  if (StepClock::is_wanted()) return "each step is timed, for the log perf or for a trace";
  return nullptr;
}

void leave_step_by_step(const Found& found, const char* why, const Options& options) {
  if (options.require_cuda_graph) require(found, why);
  if (!found.variant->recordings.is_news(why)) return;
  stats_recorder().add_not_recorded(why);
  HC_LOG(CudaGraphs, Info, "graph {}: all steps are run one by one: {}", found.plan->graph().id, why);
}

}  // namespace

EnteredPlan enter_recorded_plan(const Found& found, const capture::Bindings& bindings, const Options& options, bool has_many_streams) {
  if (!options.cuda_graphs && !options.require_cuda_graph) return {};
  // The plan as captured may also be in use for this call only, because of the order in which it reads a .grad.
  const bool is_as_captured = found.plan->is_as_captured();
  const char* why_not = has_many_streams ? "its nodes have several streams" : nullptr;
  if (why_not == nullptr && is_as_captured) why_not = why_it_stays_as_captured(found, options);
  if (why_not == nullptr) why_not = why_steps_are_looked_at(options);
  if (why_not != nullptr) leave_step_by_step(found, why_not, options);
  if (why_not != nullptr || is_as_captured) return {};

  Recordings::PerSizes recordings = found.variant->recordings.of(found.plan, bindings);
  if (options.require_cuda_graph) require(found, recordings.why_not);
  EnteredPlan plan(std::move(recordings.plan));
  if (options.require_cuda_graph && plan.get() != nullptr) require(found, plan.get()->why_not_one());
  return plan;
}

}  // namespace hindcast::engine
