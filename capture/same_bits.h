#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

/// A copy with the very strides of `tensor` (expanded dimensions become dense), conj and neg bits resolved.
at::Tensor clone_exactly(const at::Tensor& tensor);

/// Equal dtype, sizes and bits of every element; two NaNs count as equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace hindcast::capture
