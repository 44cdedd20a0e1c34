#pragma once
// The counters that kernels draw random numbers by (codegen/fuse/random_ops.h) are the same numbers in each call. On an accelerator each would
// be a launch of its own, for few bytes. So they are kept there, for each stream: its work reads them behind what wrote them.

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace hindcast::codegen {

/// 0, 1, 2, ... in int32, for the current stream of `device`: memory that is kept, and that nobody may write to. New ones where they are many,
/// where the stream is captured, and where nobody knows: a graph would read them when they are long gone.
at::Tensor kept_counters(at::IntArrayRef size, c10::Device device);

/// Of all streams. Returns the bytes that were kept.
size_t forget_counters();

}  // namespace hindcast::codegen
