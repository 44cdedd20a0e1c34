#include "engine/cuda_graphs/delivery.h"

#include "capture/backward/libtorch_access.h"
#include "capture/graph/shared_memory.h"
#include "codegen/kernel/plain.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <algorithm>
#include <utility>

namespace hindcast::engine {
namespace {

bool takes_sum(const at::Tensor& grad, const at::Tensor& made) {
  return grad.device() == made.device() && codegen::is_plain(grad, codegen::plain_keys(grad.device())) &&
         grad.scalar_type() == made.scalar_type() && grad.sizes() == made.sizes();
}

at::Tensor by_contract(const at::Tensor& variable, const at::Tensor& made) {
  if (variable.is_non_overlapping_and_dense()) return at::empty_strided(variable.sizes(), variable.strides(), made.options());
  return at::empty(made.sizes(), made.options());
}

}  // namespace

at::Tensor without_repeats(at::Tensor tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  }
  return tensor;
}

bool can_be_copied_as_it_lies(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor()) return false;
  if (tensor.numel() == 0) return true;
  c10::SmallVector<std::pair<int64_t, int64_t>, 6> dims;  // stride, size
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) != 0) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // largest offset reached by the dims so far, in elements
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

at::Tensor like(const at::Tensor& tensor) {
  const at::Tensor values = without_repeats(tensor);
  const at::Tensor made = at::empty_strided(values.sizes(), values.strides(), values.options());
  return values.sizes() == tensor.sizes() ? made : made.expand(tensor.sizes());
}

Delivery::Delivery(size_t expected) { delivered_.reserve(expected); }

at::Tensor Delivery::copy(const at::Tensor& made) {
  if (!made.defined()) return {};
  at::Tensor copied = like(made);
  to_.push_back(without_repeats(copied));
  from_.push_back(without_repeats(made));
  return copied;
}

// Only tries the lock: waiting for several locks could deadlock. A leaf tensor in use by another thread gets its gradient from its event.
void Delivery::to_leaf(torch::autograd::AccumulateGrad& leaf, const at::Tensor& made, uint32_t step) {
  const at::Tensor& variable = leaf.variable;
  std::unique_lock lock(capture::node_mutex(leaf), std::try_to_lock);
  const bool is_usual = lock && made.defined() && !variable.grad_fn() && variable.requires_grad() && made.sizes() == variable.sizes();
  if (!is_usual) return to_result(made, step);
  const at::Tensor& grad = variable.grad();
  if (!grad.defined()) {
    if (torch::autograd::utils::obeys_layout_contract(made, variable)) return to_result(made, step);
    to_.push_back(by_contract(variable, made));
    from_.push_back(made);
    delivered_.push_back({step, to_.back()});
    return;
  }
  if (!takes_sum(grad, made)) return to_result(made, step);
  sums_.push_back({grad, made, delivered_.size(), std::move(lock)});
  delivered_.push_back({step, {}, true});
}

void Delivery::add_one_by_one_where_gradients_share_memory() {
  std::vector<capture::MemoryRange> ranges;
  for (const Sum& sum : sums_) ranges.push_back(capture::memory_of(sum.grad));
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  const bool share =
      std::adjacent_find(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.meets(b); }) != ranges.end();
  if (!share) return;
  for (const Sum& sum : sums_) {
    Delivered& given = delivered_[sum.delivered];
    given.tensor = copy(sum.made);
    given.is_added = false;
  }
  sums_.clear();
}

void Delivery::run() {
  add_one_by_one_where_gradients_share_memory();
  if (!to_.empty()) at::_foreach_copy_(to_, from_);
  to_.clear();  // a leaf tensor steals a gradient only if it is the only holder
  from_.clear();
  if (sums_.empty()) return;
  std::vector<at::Tensor> grads, made;
  for (Sum& sum : sums_) {
    sum.grad.unsafeGetTensorImpl()->bump_version();
    grads.push_back(std::move(sum.grad));
    made.push_back(std::move(sum.made));
  }
  at::_foreach_add_(grads, made);
  sums_.clear();
}

}  // namespace hindcast::engine
