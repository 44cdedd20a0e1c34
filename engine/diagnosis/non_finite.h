#pragma once
// Infinities and NaN in tensors: whether there are any, and which.

#include <ATen/core/Tensor.h>

#include <string>

namespace hindcast::engine {

/// One pass over the tensor's memory. Checks strided and sparse tensors of float, double, bfloat16, half and complex numbers on devices
/// with a backend; returns false for all others, and for undefined ones.
bool has_non_finite(const at::Tensor& tensor);

/// "Float[2, 3], 2 infinite, 1 NaN, the first at [0, 1]: inf" or "Float[2, 3], from -0.5 to 2".
std::string describe_values(const at::Tensor& tensor);

}  // namespace hindcast::engine
