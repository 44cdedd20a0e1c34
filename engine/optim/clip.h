#pragma once
// Gradient clipping: the norm of all gradients, and the factor that limits it.

#include "hindcast/compiled_step.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace hindcast::engine {

struct Clipped {
  at::Tensor norm;    // one float64 on the gradients' device
  at::Tensor factor;  // the same
};

/// Throws as torch::nn::utils::clip_grad_norm_ does. Returns nullopt for gradients that are left to that function, such as sparse ones or
/// ones on several devices. `former`: the factor of an earlier step, whose memory is used again if it has no other owner.
std::optional<Clipped> clip(const ClipGradNorm& how, const std::vector<at::Tensor>& gradients, at::Tensor former = {});

/// `number.to(at::kFloat)`, for one element. A float64 on the CPU is converted without an operator, in a tenth of the time, and into
/// `former` if that has no other owner.
at::Tensor as_float(const at::Tensor& number, at::Tensor former = {});

}  // namespace hindcast::engine
