#include "engine/saved_gradients.h"

#include "capture/libtorch_access.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <mutex>

namespace hindcast::engine {
namespace {

/// Calls `visit` for each gradient that a leaf has. False: another thread is busy with a leaf, so that they are not known.
template <class Visit>
bool for_each_gradient(const codegen::Plan& plan, const capture::Collected& collected, Visit visit) {
  for (const uint32_t call : plan.accumulating_calls()) {
    auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*collected.calls[call].node);
    const std::unique_lock lock(capture::node_mutex(leaf), std::try_to_lock);
    if (!lock) return false;
    const at::Tensor& grad = leaf.variable.grad();
    if (grad.defined() && grad.has_storage()) visit(grad);
  }
  return true;
}

bool is_in(const std::vector<const c10::StorageImpl*>& sorted, const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() &&
         std::binary_search(sorted.begin(), sorted.end(), tensor.storage().unsafeGetStorageImpl());
}

}  // namespace

bool saves_a_gradient(const codegen::Plan& plan, const capture::Collected& collected, const capture::Resume& resume) {
  std::vector<const c10::StorageImpl*> shared;  // by gradients and somebody else
  const bool are_known = for_each_gradient(plan, collected, [&](const at::Tensor& grad) {
    if (grad.use_count() > 1 || grad.storage().use_count() > 1) shared.push_back(grad.storage().unsafeGetStorageImpl());
  });
  if (!are_known) return true;
  if (shared.empty()) return false;
  std::sort(shared.begin(), shared.end());
  const auto is_one = [&](const at::Tensor& tensor) { return is_in(shared, tensor); };
  return std::any_of(collected.tensors.begin(), collected.tensors.end(), is_one) ||
         std::any_of(resume.values.begin(), resume.values.end(), is_one) ||
         std::any_of(resume.buffers.begin(), resume.buffers.end(), [&](const auto& waiting) { return is_one(waiting.second); });
}

LeafGradients::LeafGradients(const codegen::Plan& plan, const capture::Collected& collected) {
  is_known_ = for_each_gradient(plan, collected, [&](const at::Tensor& grad) { memory_.push_back(grad.storage().unsafeGetStorageImpl()); });
  std::sort(memory_.begin(), memory_.end());
}

bool LeafGradients::may_be_memory_of(const at::Tensor& tensor) const { return tensor.defined() && (!is_known_ || is_in(memory_, tensor)); }

}  // namespace hindcast::engine
