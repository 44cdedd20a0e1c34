#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace hindcast::codegen::cpu {

/// The Euclidean norm of all elements of all tensors together, in one pass, independent of the number of threads. nullopt if there is no
/// kernel for one of the tensors.
std::optional<double> euclidean_norm(at::TensorList tensors);

}  // namespace hindcast::codegen::cpu
