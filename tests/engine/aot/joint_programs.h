#pragma once
// Functions of leaves as joint programs, outside of compiled functions.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "capture/function/joint.h"

namespace hindcast::tests {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors& inputs)>;
using Sizes = std::vector<std::vector<int64_t>>;

/// Random leaves that require a gradient.
Tensors leaves_of(const Sizes& sizes, uint64_t seed, at::ScalarType type = at::kFloat);
/// Forward and backward, with a tangent for each differentiable result.
capture::Joint joint_of(const Function& function, const Tensors& inputs);
/// Random, with the type and layout that the value had at capture.
at::Tensor random_like(const capture::Joint& joint, capture::ValueId value);

/// Partitions, runs both programs with kernels on primals, then tangents, and returns results, then gradients.
Tensors run_with_kernels(const capture::Joint& joint, const Tensors& given, double memory_budget = 1);

/// Strides, where dims of one element, whose stride is arbitrary, have 0.
std::vector<int64_t> strides_that_matter(const at::Tensor& tensor);

}  // namespace hindcast::tests
