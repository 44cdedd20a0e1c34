#include "engine/train/watched_leaves.h"

#include "base/format.h"
#include "capture/recorder/recorder.h"
#include "capture/recorder/tracing_tensor.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

namespace hindcast::engine {

namespace autograd = torch::autograd;

bool are_accumulators_hooked(const std::vector<at::Tensor>& leaves) {
  return std::any_of(leaves.begin(), leaves.end(), [](const at::Tensor& leaf) {
    const auto accumulator = autograd::impl::try_get_grad_accumulator(leaf);
    return accumulator != nullptr && (!accumulator->pre_hooks().empty() || !accumulator->post_hooks().empty());
  });
}

const char* why_watched(const std::vector<at::Tensor>& leaves) {
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.is_leaf()) return "a parameter is no leaf";
    const auto* const meta = autograd::impl::get_autograd_meta(leaf);
    if (meta == nullptr) continue;
    if (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr) return "a parameter has a hook";
  }
  return are_accumulators_hooked(leaves) ? "the AccumulateGrad node of a parameter has a hook, as those of DistributedDataParallel"
                                         : nullptr;
}

std::string describe_other_leaf(const at::Tensor& loss, const std::vector<at::Tensor>& known) {
  if (capture::Recorder::current() == nullptr) return {};
  std::unordered_set<const at::TensorImpl*> are_known;
  for (const at::Tensor& tensor : known) are_known.insert(tensor.unsafeGetTensorImpl());
  std::unordered_set<const autograd::Node*> seen;
  std::vector<autograd::Node*> pending = {loss.grad_fn().get()};
  while (!pending.empty()) {
    autograd::Node* const node = pending.back();
    pending.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (auto* const leaf = dynamic_cast<autograd::AccumulateGrad*>(node)) {
      const at::Tensor& variable = leaf->variable;
      const bool is_from_outside = capture::TracingTensor::get(variable) == nullptr;
      if (is_from_outside && are_known.count(variable.unsafeGetTensorImpl()) == 0)
        return base::format("a {} tensor of sizes {}", c10::toString(variable.scalar_type()), c10::str(variable.sizes()));
    }
    for (const autograd::Edge& edge : node->next_edges()) pending.push_back(edge.function.get());
  }
  return {};
}

}  // namespace hindcast::engine
