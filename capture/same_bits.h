#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

/// A copy with the very strides, gaps, overlaps, conj and neg bits of `tensor`, as far past a cache line: ATen's kernels and
/// MKL choose their path, and so their rounding, by them.
at::Tensor clone_exactly(const at::Tensor& tensor);

/// Equal dtype, sizes and bits of every element; two NaNs count as equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace hindcast::capture
