#pragma once
// Runs work in parallel on LibTorch's own intra-op threads, whose number users set with at::set_num_threads().
//
// at::parallel_for is a template: compiled here without OpenMP, it would run everything on the calling thread; compiled with OpenMP,
// it might load a second OpenMP runtime beside LibTorch's. So LibTorch's TensorIterator is used to distribute the work.

#include "codegen/fuse/body.h"

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace hindcast::codegen::cpu {

/// The minimum number of elements per thread: ATen's for one op; fewer for a body of many ops.
int64_t grain_of(const Body& body);
/// The number of shares of `size`, each of at least `grain`: at most one per thread; 1 inside a parallel region.
int64_t shares_of(int64_t size, int64_t grain);
/// Calls run(0) ... run(shares - 1), each on some thread.
void run_shares(int64_t shares, c10::function_ref<void(int64_t share)> run);
/// Calls `run` for ranges that partition [0, size), one per share.
void run_ranges(int64_t size, int64_t grain, c10::function_ref<void(int64_t begin, int64_t end)> run);

}  // namespace hindcast::codegen::cpu
