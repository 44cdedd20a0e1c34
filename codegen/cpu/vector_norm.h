#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace hindcast::codegen::cpu {

/// The Euclidean norm of all elements of all tensors together, in one pass over them, the same for any number of threads. Nothing: there is
/// no kernel for one of them.
std::optional<double> euclidean_norm(at::TensorList tensors);

}  // namespace hindcast::codegen::cpu
