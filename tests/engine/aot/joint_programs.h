#pragma once
// Functions of leaves as joint programs, outside of any compiled function.

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
/// Forward and backward, with a gradient for each result that takes one.
capture::Joint joint_of(const Function& function, const Tensors& inputs);
/// Random, like a value was at capture.
at::Tensor random_like(const capture::Joint& joint, capture::ValueId value);

/// Results, then gradients, of primals, then tangents: by kernels, after a partition.
Tensors run_with_kernels(const capture::Joint& joint, const Tensors& given, double memory_budget = 1);

/// A dim of one element has any stride: 0 here.
std::vector<int64_t> strides_that_matter(const at::Tensor& tensor);

}  // namespace hindcast::tests
