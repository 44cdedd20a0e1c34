#include "hooks/add_gradients.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/input_buffer.h>

namespace hindcast::hooks {

at::Tensor add_gradients(at::Tensor sum, at::Tensor gradient, bool sum_is_view) {
  if (!gradient.defined()) return sum;
  if (!sum.defined()) return gradient;
  if (sum.layout() == at::kStrided && gradient.layout() == at::kStrided) {
    const bool reusable = !sum_is_view && sum.is_non_overlapping_and_dense() && !at::isTensorSubclassLike(sum) && !sum._is_zerotensor() &&
                          !sum.is_nested() && sum.use_count() == 1 && sum.has_storage() && sum.storage().use_count() == 1;
    if (reusable && !at::isTensorSubclassLike(gradient)) return sum.add_(gradient);
    return at::add(sum, gradient);
  }
  torch::autograd::InputBuffer buffer(1);
  buffer.buffer[0] = std::move(sum);
  buffer.add(0, std::move(gradient), std::nullopt, std::nullopt, nullptr);
  return std::move(buffer.buffer[0]);
}

}  // namespace hindcast::hooks
