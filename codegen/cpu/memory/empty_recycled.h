#pragma once
// Makes uninitialised CPU tensors with memory from Recycler::of_process().

#include <ATen/core/Tensor.h>

namespace hindcast::codegen::cpu {

/// As at::empty_strided(), but below autograd and the dispatcher, and never filled. Tensors smaller than Recycler::Limits::smallest
/// get memory from LibTorch's allocator, at the cost of one branch. resize_() allocates from the recycler too.
/// Throws c10::Error as at::empty_strided() does: for a negative size, or if out of memory.
at::Tensor empty_strided_recycled(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

}  // namespace hindcast::codegen::cpu
