#pragma once
// The norm of all gradients, and what they are multiplied by so that it is no larger than asked for.

#include "engine/optim/compiled_step.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace hindcast::engine {

struct Clipped {
  at::Tensor norm;    // one float64, where the gradients are
  at::Tensor factor;  // the same
};

/// Throws as torch::nn::utils::clip_grad_norm_ does. Nothing: gradients of several devices, sparse ones and the like, which LibTorch's own
/// function may know.
std::optional<Clipped> clip(const ClipGradNorm& how, const std::vector<at::Tensor>& gradients);

}  // namespace hindcast::engine
