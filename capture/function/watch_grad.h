#pragma once
// `.grad` of a stand-in is not that of the argument: a function that asks for it, or sets it, runs as it is.

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

/// From now on the recorder of a thread sees who asks for the tensor's gradient, and gives that of `input`; but for a backward, which adds to it.
/// Before the tensor has anything of autograd's.
void watch_grad(const at::Tensor& stand_in, const at::Tensor& input);

/// What a backward has added, unseen.
at::Tensor grad_of(const at::Tensor& stand_in);

}  // namespace hindcast::capture
