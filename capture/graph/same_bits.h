#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hindcast::capture {

/// A copy with the strides, gaps, overlaps, conj and neg bits of `tensor`, and its offset within a cache line: ATen's kernels and MKL
/// choose their code path, and so their rounding, by these.
at::Tensor clone_exactly(const at::Tensor& tensor);

/// Whether 0.0 and -0.0 differ.
enum class Zeros : uint8_t { Signed, Unsigned };

/// Equal dtype, sizes and bits of every element; two NaNs count as equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b, Zeros zeros = Zeros::Signed);
/// As close as sums of the same numbers in different orders, with little cancellation. Types that are neither floating-point nor complex
/// must be bitwise equal.
bool nearly_same(const at::Tensor& a, const at::Tensor& b);

}  // namespace hindcast::capture
