#pragma once
// An uninitialised tensor on the CPU in memory of Recycler::of_process().

#include <ATen/core/Tensor.h>

namespace hindcast::codegen::cpu {

/// As at::empty_strided(), but below autograd and the dispatcher, and never filled. Tensors below Recycler::Limits::smallest
/// are in memory of LibTorch's allocator, for which they pay one branch. resize_() stays with the recycler.
/// Throws c10::Error as at::empty_strided(): a negative size, no memory.
at::Tensor empty_strided_recycled(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

}  // namespace hindcast::codegen::cpu
