#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hindcast::capture {

/// A copy with the very strides, gaps, overlaps, conj and neg bits of `tensor`, as far past a cache line: ATen's kernels and
/// MKL choose their path, and so their rounding, by them.
at::Tensor clone_exactly(const at::Tensor& tensor);

/// Whether 0.0 and -0.0 are two numbers.
enum class Zeros : uint8_t { Signed, Unsigned };

/// Equal dtype, sizes and bits of every element; two NaNs count as equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b, Zeros zeros = Zeros::Signed);
/// As near as sums of the same numbers in another order are, where little cancels. Other types than those of real and complex numbers: the
/// same bits.
bool nearly_same(const at::Tensor& a, const at::Tensor& b);

}  // namespace hindcast::capture
