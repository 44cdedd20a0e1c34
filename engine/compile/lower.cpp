#include "engine/compile/lower.h"

#include "base/format.h"
#include "base/log.h"
#include "base/trace.h"
#include "codegen/fuse/fuse.h"
#include "codegen/kernel/backend.h"
#include "codegen/kernel/kernel_object.h"
#include "codegen/passes/own_outputs.h"
#include "codegen/passes/pipeline.h"
#include "codegen/plan/aten_call.h"
#include "engine/diagnosis/trace/graph_records.h"
#include "engine/diagnosis/verify.h"
#include "engine/plan/backward_plan.h"

#include <algorithm>
#include <vector>

namespace hindcast::engine {
namespace {

using Kernels = std::vector<std::shared_ptr<const codegen::Kernel>>;

[[noreturn]] void refuse(const std::string& what) { throw NotLowered(NotLowered::Why::WrongResult, what); }

// Checks that the rewritten graph gives the capture's results, bitwise except for what the passes do not preserve.
void check_passes(const codegen::Optimised& optimised, const capture::ReplayCheck& check) {
  capture::ReplayCheck expected = check;
  for (auto& [value, tensor] : expected.results) value = optimised.replacement_of(value);
  const auto zeros = optimised.keeps_signs_of_zeros ? capture::Zeros::Signed : capture::Zeros::Unsigned;
  if (const auto wrong = verify_graph(*optimised.graph, expected, zeros)) {
    refuse(base::format("after the passes over it, {}\n{}", *wrong, optimised.graph->print()));
  }
}

void log_groups(const codegen::Schedule& schedule, const capture::Graph& graph, const codegen::Backend* kernels) {
  if (base::tracing()) record_groups(schedule, graph, kernels);
  if (!base::is_for_output(base::Channel::Fusion, base::Level::Info)) return;
  for (const codegen::Group& group : schedule.groups) {
    base::write_output(base::Channel::Fusion, base::Level::Info, sentence_of(group, graph));
  }
}

// The line in the log `kernel_code` about a kernel compiled for this group.
std::string asked_by(const codegen::Group& group, const capture::Graph& graph) {
  return base::is_for_output(base::Channel::KernelCode, base::Level::Info) ? sentence_of(group, graph) : std::string();
}

struct Fused {
  std::shared_ptr<const capture::Graph> graph;
  codegen::Schedule schedule;
};

// True if a kernel that reads the gradient also writes the copy, and only leaf tensors take the copy.
bool is_made_on_the_way(capture::ValueId copy, const codegen::Schedule& schedule, const capture::Graph& graph) {
  for (const codegen::Group& group : schedule.groups) {
    const auto store = std::find(group.stores.begin(), group.stores.end(), copy);
    if (store == group.stores.end()) continue;
    const auto at = static_cast<uint32_t>(store - group.stores.begin());
    const auto is_leaf = [&](const codegen::Group::Leaf& leaf) { return leaf.store == at && leaf.is_of_leaves; };
    const auto is_reader = [&](uint32_t member) {
      bool reads = false;
      capture::for_each_use(graph.instrs[member], [&](capture::ValueId used) { reads = reads || used == copy; });
      return reads;
    };
    return std::any_of(group.leaves.begin(), group.leaves.end(), is_leaf) &&
           std::any_of(group.members.begin(), group.members.end(), is_reader);
  }
  return false;
}

// Fusion. Leaf tensors get copies of gradients only if a kernel writes them as a by-product; it fuses again without the other copies.
Fused fuse(const std::shared_ptr<const capture::Graph>& graph, const codegen::CostModel& costs) {
  std::vector<capture::ValueId> gradients = codegen::gradients_for_leaves(*graph, costs);
  while (!gradients.empty()) {
    const codegen::OwnGradients own = codegen::with_own_gradients(graph, gradients);
    codegen::Schedule schedule = codegen::fuse(*own.graph, costs);
    std::vector<capture::ValueId> kept;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (is_made_on_the_way(own.copies[i], schedule, *own.graph)) kept.push_back(gradients[i]);
    }
    if (kept.size() == gradients.size()) return {own.graph, std::move(schedule)};
    gradients = std::move(kept);
  }
  return {graph, codegen::fuse(*graph, costs)};
}

// One per group; nullptr if its kernel could not be compiled, with the first reason in `first_failure`. Throws if no group has one, as
// without a compiler.
Kernels kernels_of(const codegen::Backend& backend, const codegen::Schedule& schedule, const capture::Graph& graph,
                   const LowerRequest& request, std::string& first_failure) {
  Kernels kernels;
  for (const codegen::Group& group : schedule.groups) {
    if (request.is_cancelled && request.is_cancelled()) throw NotLowered(NotLowered::Why::Cancelled, "cancelled");
    const codegen::AskedBy group_asks(asked_by(group, graph));
    std::string why_not = backend.why_not_on(group.device);
    kernels.push_back(why_not.empty() ? backend.kernel(group.body, why_not, request.later) : nullptr);
    if (!kernels.back() && first_failure.empty()) first_failure = why_not;
  }
  const bool any = std::any_of(kernels.begin(), kernels.end(), [](const auto& kernel) { return kernel != nullptr; });
  if (!any && !kernels.empty()) throw std::runtime_error(first_failure);
  return kernels;
}

}  // namespace

Lowered lower(const std::shared_ptr<const capture::Graph>& captured, const LowerRequest& request) {
  // The backend of the graph's device, with its cost model. A graph without a backend stays with ATen.
  const codegen::Backend* const backend = codegen::backend_of(*captured);
  if (backend == nullptr) return {plan_of(captured)};

  // Passes. From here on the graph has no redundant and no unused instrs.
  const codegen::Optimised optimised = codegen::optimise(captured, backend->cost_model(), request.through_aten);
  if (request.check && optimised.graph != captured) check_passes(optimised, *request.check);

  // Fusion. Each group becomes one kernel; the schedule is the order in which groups and the remaining ATen ops run.
  const Fused fused = fuse(codegen::with_own_outputs(optimised.graph, request.own_outputs), backend->cost_model());
  const std::shared_ptr<const capture::Graph>& graph = fused.graph;
  const codegen::Schedule& schedule = fused.schedule;
  log_groups(schedule, *graph, request.through_aten ? nullptr : backend);
  if (schedule.groups.empty() && graph == captured) return {plan_of(captured)};

  // The same plan without kernels: each group runs op by op through ATen.
  if (request.through_aten) {
    const auto call = [&](uint32_t group) { return codegen::make_aten_call(schedule.groups[group], graph); };
    return {plan_of(graph, schedule, call), schedule.groups.size()};
  }

  // Kernels: each found in this process or on disk, or compiled now. With a check, each is compared with ATen.
  Lowered lowered;
  const Kernels kernels = kernels_of(*backend, schedule, *graph, request, lowered.first_failure);
  if (request.check) {
    if (const auto wrong = verify_kernels(*backend, *graph, schedule, kernels, *request.check)) refuse(*wrong);
  }

  // The plan. Values become slots, and the schedule's items become steps.
  const auto call = [&](uint32_t group) {
    return kernels[group] ? backend->call(schedule.groups[group], kernels[group]) : codegen::make_aten_call(schedule.groups[group], graph);
  };
  lowered.plan = plan_of(graph, schedule, call);
  lowered.groups = schedule.groups.size();
  return lowered;
}

}  // namespace hindcast::engine
