#pragma once
// LibTorch's default generator of the CPU.

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

at::Tensor random_state();
void set_random_state(const at::Tensor& state);

}  // namespace hindcast::capture
