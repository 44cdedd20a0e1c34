#pragma once
// Autograd formulas that compute something else in grad mode.

#include <torch/csrc/autograd/function.h>

namespace hindcast::capture {

/// True if the node's formula reads the grad mode. With the mode off it may call a kernel that has no derivative (silu_backward), or use a
/// saved factorization as a constant (linalg.solve), so a backward recorded with the mode off cannot be differentiated.
bool asks_for_grad_mode(const torch::autograd::Node& node);

}  // namespace hindcast::capture
