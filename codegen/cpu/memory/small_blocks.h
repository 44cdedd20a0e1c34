#pragma once
// Memory for small results, that a thread has freed before.
//
// LibTorch's allocator asks for aligned memory, which malloc does not serve from a thread's cache: it takes some 100 ns, and more where malloc
// merges free chunks. A step allocates the same sizes again and again. So each thread keeps the blocks that it freed last, and reuses one
// of exactly the requested size.
//
// A thread keeps at most kMostBytes, until it ends. A block goes to the thread that frees it, whichever allocated it.

#include <c10/core/Allocator.h>

#include <cstddef>

namespace hindcast::codegen::cpu::small_blocks {

inline constexpr size_t kLargest = size_t{64} << 10;     // of a block
inline constexpr size_t kMostBytes = size_t{256} << 10;  // in free blocks of a thread
inline constexpr size_t kMost = 32;                      // of these

/// At most kLargest `bytes`. Throws what LibTorch's allocator throws.
c10::DataPtr allocate(size_t bytes);

/// Returns the calling thread's free blocks to LibTorch's allocator. Bytes returned.
size_t trim();

/// In the calling thread's free blocks.
size_t held_bytes();

}  // namespace hindcast::codegen::cpu::small_blocks
