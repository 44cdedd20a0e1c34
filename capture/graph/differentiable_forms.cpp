#include "capture/graph/differentiable_forms.h"

#include "capture/graph/known_op.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <c10/core/GradMode.h>

namespace hindcast::capture {

std::optional<at::Tensor> differentiable_form(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  static constinit KnownOp silu_backward("aten::silu_backward");
  if (!c10::GradMode::is_enabled() || op != silu_backward.get()) return std::nullopt;
  const at::Tensor &gradient = arguments[0].toTensor(), &x = arguments[1].toTensor();
  if (!gradient.requires_grad() && !x.requires_grad()) return std::nullopt;
  const at::Tensor sigmoid = x.sigmoid();
  return gradient * sigmoid * (1.0 + x * (1.0 - sigmoid));  // infinitely_differentiable_silu_backward
}

}  // namespace hindcast::capture
