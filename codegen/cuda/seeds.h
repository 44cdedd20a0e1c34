#pragma once
// Seeds of dropout on a card (codegen/fuse/random_ops.h). LibTorch's random_() launches a kernel for one number. Here the host works the number
// out, and the driver writes it, in a third of the time.

#include <ATen/core/Tensor.h>

namespace hindcast::codegen::cuda {

/// A number of the default generator of `device`, which no other call draws: what manual_seed and a restored state reproduce.
at::Tensor draw_seed(c10::Device device);

}  // namespace hindcast::codegen::cuda
