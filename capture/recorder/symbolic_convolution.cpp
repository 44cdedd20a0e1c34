#include "capture/recorder/symbolic_composites.h"

#include <ATen/ops/_convolution_double_backward_ops.h>
#include <torch/library.h>

#include <array>
#include <tuple>

namespace hindcast::capture {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

c10::SymDimVector as_numbers(SymIntArrayRef sizes) {
  c10::SymDimVector numbers;
  for (const SymInt& size : sizes) numbers.push_back(size.guard_int(__FILE__, __LINE__));
  return numbers;
}

// ATen's own raises an error if the convolution's settings are symbols. They are where a backward is a function of its nodes' integers.
std::tuple<Tensor, Tensor, Tensor> convolution_double_backward(c10::DispatchKeySet keys, const std::optional<Tensor>& ggI,
                                                               const std::optional<Tensor>& ggW, const std::optional<Tensor>& ggb,
                                                               const Tensor& gO, const Tensor& weight, const Tensor& self,
                                                               SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                                                               bool transposed, SymIntArrayRef output_padding, SymInt groups,
                                                               std::array<bool, 3> output_mask) {
  return at::_ops::_convolution_double_backward::redispatch(below_symbolic_composites(keys), ggI, ggW, ggb, gO, weight, self,
                                                            as_numbers(stride), as_numbers(padding), as_numbers(dilation), transposed,
                                                            as_numbers(output_padding), groups.guard_int(__FILE__, __LINE__), output_mask);
}

}  // namespace

void implement_symbolic_convolution(torch::Library& aten) {
  aten.impl("_convolution_double_backward", TORCH_FN(convolution_double_backward));
}

}  // namespace hindcast::capture
