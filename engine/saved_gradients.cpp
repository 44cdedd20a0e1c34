#include "engine/saved_gradients.h"

#include "capture/libtorch_access.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <mutex>

namespace hindcast::engine {
namespace {

class LeafGradients {
 public:
  LeafGradients(const codegen::Plan& plan, const capture::Collected& collected) {
    for (const uint32_t call : plan.accumulating_calls()) {
      auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*collected.calls[call].node);
      const std::unique_lock lock(capture::node_mutex(leaf), std::try_to_lock);
      if (!lock) {
        is_known_ = false;  // another thread is busy with it
        return;
      }
      const at::Tensor& grad = leaf.variable.grad();
      if (!grad.defined() || !grad.has_storage()) continue;
      if (grad.use_count() > 1 || grad.storage().use_count() > 1) shared_.push_back(grad.storage().unsafeGetStorageImpl());
    }
    std::sort(shared_.begin(), shared_.end());
  }

  bool are_nobody_elses() const { return is_known_ && shared_.empty(); }
  bool may_be_memory_of(const at::Tensor& tensor) const {
    if (!tensor.defined() || !tensor.has_storage()) return false;
    return !is_known_ || std::binary_search(shared_.begin(), shared_.end(), tensor.storage().unsafeGetStorageImpl());
  }

 private:
  std::vector<const c10::StorageImpl*> shared_;  // by gradients and somebody else
  bool is_known_ = true;
};

}  // namespace

bool saves_a_gradient(const codegen::Plan& plan, const capture::Collected& collected, const capture::Resume& resume) {
  const LeafGradients gradients(plan, collected);
  if (gradients.are_nobody_elses()) return false;
  const auto is_one = [&](const at::Tensor& tensor) { return gradients.may_be_memory_of(tensor); };
  return std::any_of(collected.tensors.begin(), collected.tensors.end(), is_one) ||
         std::any_of(resume.values.begin(), resume.values.end(), is_one) ||
         std::any_of(resume.buffers.begin(), resume.buffers.end(), [&](const auto& waiting) { return is_one(waiting.second); });
}

bool is_memory_of_a_gradient(const std::vector<at::Tensor>& returned, const codegen::Plan& plan, const capture::Collected& collected) {
  const auto is_held_twice = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage() && (tensor.use_count() > 1 || tensor.storage().use_count() > 1);
  };
  if (std::none_of(returned.begin(), returned.end(), is_held_twice)) return false;
  const LeafGradients gradients(plan, collected);
  return std::any_of(returned.begin(), returned.end(), [&](const at::Tensor& tensor) { return gradients.may_be_memory_of(tensor); });
}

}  // namespace hindcast::engine
