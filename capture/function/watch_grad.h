#pragma once
// Intercepts `.grad` of a stand-in, which is not the argument's. A function that reads or sets it runs eagerly.

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

/// From now on the recorder of a thread answers a request for the gradient of `stand_in` with that of `input`. A backward only adds to it.
/// Call it before the tensor has autograd metadata.
void watch_grad(const at::Tensor& stand_in, const at::Tensor& input);

/// The gradient that a backward has added. The recorder does not notice this request.
at::Tensor grad_of(const at::Tensor& stand_in);

}  // namespace hindcast::capture
