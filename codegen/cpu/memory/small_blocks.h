#pragma once
// A per-thread cache of small memory blocks, for small results.
//
// LibTorch's allocator requests aligned memory, which malloc does not serve from a thread's cache: it takes about 100 ns, and more if
// malloc merges free chunks. A training step allocates the same sizes again and again. So each thread keeps the blocks that it freed last,
// and reuses one of exactly the requested size.
//
// A thread keeps at most kMostBytes, until it ends. A freed block is kept by the thread that frees it, not by the one that allocated it.

#include <c10/core/Allocator.h>

#include <cstddef>

namespace hindcast::codegen::cpu::small_blocks {

inline constexpr size_t kLargest = size_t{64} << 10;     // bytes of a block
inline constexpr size_t kMostBytes = size_t{256} << 10;  // bytes in free blocks of a thread
inline constexpr size_t kMost = 32;                      // free blocks of a thread

/// `bytes` must be at most kLargest. Throws what LibTorch's allocator throws.
c10::DataPtr allocate(size_t bytes);

/// Returns the calling thread's free blocks to LibTorch's allocator. Returns the number of bytes freed.
size_t trim();

/// Bytes in the calling thread's free blocks.
size_t held_bytes();

}  // namespace hindcast::codegen::cpu::small_blocks
