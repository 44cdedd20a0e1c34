#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::hooks {

/// The engine's sum of two gradients that flow into one node input: in place into `sum` if the caller passes its last reference (by move)
/// and it is an ordinary dense tensor, otherwise into a new tensor. Same rule as LibTorch's InputBuffer. `sum_is_view`: a view op made
/// `sum`. In the stock engine its metadata keeps the base alive, so the memory is shared.
at::Tensor add_gradients(at::Tensor sum, at::Tensor gradient, bool sum_is_view = false);

}  // namespace hindcast::hooks
