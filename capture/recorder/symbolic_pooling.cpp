#include "capture/recorder/symbolic_composites.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/max_pool1d_ops.h>
#include <ATen/ops/max_pool1d_with_indices_ops.h>
#include <torch/library.h>

namespace hindcast::capture {
namespace {

using at::IntArrayRef;
using at::Tensor;

// ATen's own asks for the length as a number, for a check that max_pool1d_with_indices makes with symbols.
Tensor max_pool1d(c10::DispatchKeySet keys, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  const bool is_right = kernel_size.size() == 1 && stride.size() <= 1 && padding.size() == 1 && dilation.size() == 1 &&
                        (self.dim() == 2 || self.dim() == 3) && self.requires_grad() && at::GradMode::is_enabled();
  if (!is_right || !is_symbolic(self) || others_come_first(keys)) {
    return at::_ops::max_pool1d::redispatch(below_symbolic_composites(keys), self, kernel_size, stride, padding, dilation, ceil_mode);
  }
  return std::get<0>(at::_ops::max_pool1d_with_indices::call(self, kernel_size, stride, padding, dilation, ceil_mode));
}

}  // namespace

void implement_symbolic_pooling(torch::Library& aten) { aten.impl("max_pool1d", TORCH_FN(max_pool1d)); }

}  // namespace hindcast::capture
