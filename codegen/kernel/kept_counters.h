#pragma once
// A cache of the counters from which kernels draw random numbers (codegen/fuse/random_ops.h). They are the same in each call, and on an
// accelerator each would cost a launch of its own for a few bytes. They are kept per stream, so that reads are ordered after the write.

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace hindcast::codegen {

/// 0, 1, 2, ... in int32, for the current stream of `device`: cached memory, which callers must not write to. Not cached if there are too
/// many, or if the stream is or may be capturing: the CUDA graph would read the memory after it is freed.
at::Tensor kept_counters(at::IntArrayRef size, c10::Device device);

/// Empties the cache for all streams. Returns the bytes that it held.
size_t forget_counters();

}  // namespace hindcast::codegen
