#include "engine/lower.h"

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
#include "engine/backward_plan.h"

#include <algorithm>
#include <vector>

namespace hindcast::engine {
namespace {

using Kernels = std::vector<std::shared_ptr<const codegen::Kernel>>;

[[noreturn]] void refuse(const std::string& what) { throw NotLowered(NotLowered::Why::WrongResult, what); }

// The graph behind the passes gives the capture's results, to the bit but for what the passes do not keep.
void check_passes(const codegen::Optimised& optimised, const capture::ReplayCheck& check) {
  capture::ReplayCheck expected = check;
  for (auto& [value, tensor] : expected.results) value = optimised.replacement_of(value);
  const auto zeros = optimised.keeps_signs_of_zeros ? capture::Zeros::Signed : capture::Zeros::Unsigned;
  if (const auto wrong = verify_graph(*optimised.graph, expected, zeros)) {
    refuse(base::format("behind the passes over it, {}\n{}", *wrong, optimised.graph->print()));
  }
}

void tell_groups(const codegen::Schedule& schedule, const capture::Graph& graph, const codegen::Backend* kernels) {
  if (base::tracing()) record_groups(schedule, graph, kernels);
  if (!base::is_for_output(base::Channel::Fusion, base::Level::Info)) return;
  for (const codegen::Group& group : schedule.groups) {
    base::write_output(base::Channel::Fusion, base::Level::Info, sentence_of(group, graph));
  }
}

// What the log `kernel_code` says of a kernel that is compiled for this group.
std::string asked_by(const codegen::Group& group, const capture::Graph& graph) {
  return base::is_for_output(base::Channel::KernelCode, base::Level::Info) ? sentence_of(group, graph) : std::string();
}

struct Fused {
  std::shared_ptr<const capture::Graph> graph;
  codegen::Schedule schedule;
};

// A kernel that reads the gradient makes the copy, and leaves alone take it.
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

// Fusion. Copies for leaves that no kernel makes on the way are taken back.
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

// Null for a group whose kernel could not be compiled, with the reason. Throws where there are none at all, as without a compiler.
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
  // The backend of the graph's device, which knows what pays there. A graph that no backend takes stays with ATen.
  const codegen::Backend* const backend = codegen::backend_of(*captured);
  if (backend == nullptr) return {plan_of(captured)};

  // Passes. From here on the graph computes nothing twice and nothing that nobody reads.
  const codegen::Optimised optimised = codegen::optimise(captured, backend->cost_model(), request.through_aten);
  if (request.check && optimised.graph != captured) check_passes(optimised, *request.check);

  // Fusion. Each group becomes one kernel; the schedule is the order in which groups and the ops that are left to ATen then run.
  const Fused fused = fuse(codegen::with_own_outputs(optimised.graph, request.own_outputs), backend->cost_model());
  const std::shared_ptr<const capture::Graph>& graph = fused.graph;
  const codegen::Schedule& schedule = fused.schedule;
  tell_groups(schedule, *graph, request.through_aten ? nullptr : backend);
  if (schedule.groups.empty() && graph == captured) return {plan_of(captured)};

  // Without kernels, the same plan with ATen's ops in each group.
  if (request.through_aten) {
    const auto call = [&](uint32_t group) { return codegen::make_aten_call(schedule.groups[group], graph); };
    return {plan_of(graph, schedule, call), schedule.groups.size()};
  }

  // Kernels, each from this process, from the disk, or compiled now; and each compared with ATen.
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
