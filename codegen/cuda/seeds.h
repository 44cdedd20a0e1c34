#pragma once
// Draws dropout seeds on a card (codegen/fuse/random_ops.h). LibTorch's random_() launches a kernel for one number. Here the host computes
// the number and the driver writes it, in a third of the time.

#include <ATen/core/Tensor.h>

namespace hindcast::codegen::cuda {

/// A number from the default generator of `device` that no other call draws. manual_seed and a restored generator state reproduce it.
at::Tensor draw_seed(c10::Device device);

}  // namespace hindcast::codegen::cuda
