#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::hooks {

/// The engine's sum of two gradients that flow into one node input: into `sum` in place when we hold its last reference
/// (pass it by move) and it is an ordinary dense tensor, else a new tensor. Same rule as LibTorch's InputBuffer.
at::Tensor add_gradients(at::Tensor sum, at::Tensor gradient);

}  // namespace hindcast::hooks
