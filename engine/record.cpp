#include "engine/record.h"

#include "base/format.h"

#include <stdexcept>

namespace hindcast::engine {
namespace {

void require(const Found& found, const std::string& why_not) {
  if (why_not.empty()) return;
  throw std::runtime_error(base::format("hindcast::Options::require_cuda_graph: graph {} is not replayed as one CUDA graph: {}",
                                        found.plan->graph().id, why_not));
}

}  // namespace

EnteredPlan enter_recorded_plan(const Found& found, const capture::Bindings& bindings, const Options& options) {
  if (!options.cuda_graphs && !options.require_cuda_graph) return {};
  // Kernels may come yet. A plan as it was captured may also be chosen for one step, in whose order gradients of leaves are read.
  if (found.plan->is_as_captured()) {
    if (options.require_cuda_graph && found.variant->slot().is_compiled()) require(found, "it runs op by op, as it was captured");
    return {};
  }
  EnteredPlan plan(found.variant->recordings.of(found.plan, bindings));
  if (options.require_cuda_graph && plan.get() != nullptr) require(found, plan.get()->why_not_one());
  return plan;
}

}  // namespace hindcast::engine
