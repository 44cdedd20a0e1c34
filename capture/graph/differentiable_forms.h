#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace hindcast::capture {

/// What LibTorch's formulas compute in grad mode in place of an operator that has no derivative. nullopt: the operator has one, or no
/// argument requires a gradient.
std::optional<at::Tensor> differentiable_form(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace hindcast::capture
