#include "engine/saved_gradients.h"

#include "capture/libtorch_access.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <mutex>

namespace hindcast::engine {

bool saves_a_gradient(const codegen::Plan& plan, const capture::Collected& collected, const capture::Resume& resume) {
  std::vector<const c10::StorageImpl*> shared;  // by gradients and somebody else
  for (const uint32_t call : plan.accumulating_calls()) {
    auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*collected.calls[call].node);
    const std::unique_lock lock(capture::node_mutex(leaf), std::try_to_lock);
    if (!lock) return true;  // another thread is busy with it: it is not known
    const at::Tensor& grad = leaf.variable.grad();
    if (!grad.defined() || !grad.has_storage()) continue;
    if (grad.use_count() > 1 || grad.storage().use_count() > 1) shared.push_back(grad.storage().unsafeGetStorageImpl());
  }
  if (shared.empty()) return false;
  std::sort(shared.begin(), shared.end());
  const auto is_shared = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage() &&
           std::binary_search(shared.begin(), shared.end(), tensor.storage().unsafeGetStorageImpl());
  };
  return std::any_of(collected.tensors.begin(), collected.tensors.end(), is_shared) ||
         std::any_of(resume.values.begin(), resume.values.end(), is_shared) ||
         std::any_of(resume.buffers.begin(), resume.buffers.end(), [&](const auto& waiting) { return is_shared(waiting.second); });
}

}  // namespace hindcast::engine
