#pragma once

#include <cstdint>

namespace hindcast::bench {

/// Counts every byte of tensor memory on the CPU, exactly, whichever thread allocates or frees it.
///
/// LibTorch's own reports (MemoryReportingInfoBase) are thread-local: a block freed by another thread would look leaked. So the default
/// allocator is wrapped instead, and each block has its size in a header of one cache line. Both engines allocate through it, in timed code
/// too.
///
/// Call once, before the first tensor. Allocations inside oneDNN's kernels are not counted.
void install_counting_allocator();

/// Lets malloc keep freed memory. Else large tensors sometimes come from the system, and whichever engine gets them pays for the page
/// faults: more than the backward of a few pointwise ops takes. Call it first of all.
void keep_freed_pages();

int64_t live_bytes();

/// The most bytes that lived at once since the last `restart_peak()`.
int64_t peak_bytes();
void restart_peak();

/// Bytes that malloc has handed out and not got back, tensors or not, as glibc counts them.
int64_t heap_bytes();

/// Resident memory of this process that no file backs: paged-in code does not count.
int64_t resident_bytes();

/// Returns free pages of malloc to the system, so that the remaining resident memory is in use.
void return_freed_pages();

}  // namespace hindcast::bench
