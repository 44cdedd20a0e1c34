#pragma once
// Work shared out on LibTorch's own intra-op threads, whose number users set with at::set_num_threads().
//
// at::parallel_for is a template: compiled here, without OpenMP, it runs everything on the calling thread, and with OpenMP it
// would bring a second runtime where LibTorch's has another name. LibTorch's TensorIterator does the sharing instead.

#include "codegen/fuse/body.h"

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace hindcast::codegen::cpu {

/// Elements that a thread takes at least: those of ATen for one op; fewer for a body of many.
int64_t grain_of(const Body& body);
/// How many shares to make of `size`, each at least `grain`: at most one a thread; 1 where threads are at work already.
int64_t shares_of(int64_t size, int64_t grain);
/// Calls run(0) ... run(shares - 1), each on some thread.
void run_shares(int64_t shares, c10::function_ref<void(int64_t share)> run);
/// Ranges of [0, size), one a share.
void run_ranges(int64_t size, int64_t grain, c10::function_ref<void(int64_t begin, int64_t end)> run);

}  // namespace hindcast::codegen::cpu
