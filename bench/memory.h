#pragma once

#include <cstdint>

namespace hindcast::bench {

/// Counts every byte of tensor memory on the CPU, exactly, whichever thread allocates or frees it.
///
/// LibTorch's own reports (MemoryReportingInfoBase) are thread-local: a block freed by another
/// thread would look leaked. So the default allocator is wrapped instead, and each block carries
/// its size in a header of one cache line. Both engines allocate through it, in timed code too.
///
/// Call once, before the first tensor. What oneDNN allocates inside a kernel is not seen.
void install_counting_allocator();

/// Lets malloc keep what is freed. Else large tensors come from the system anew by chance, and whichever engine they hit
/// pays for their page faults: more than the backward of a few pointwise ops takes. Call it first of all.
void keep_freed_pages();

int64_t live_bytes();

/// The most bytes that lived at once since the last `restart_peak()`.
int64_t peak_bytes();
void restart_peak();

/// Bytes that malloc has handed out and not got back, tensors or not, as glibc counts them.
int64_t heap_bytes();

/// Memory of this process that is resident and no file's: code that is paged in does not count.
int64_t resident_bytes();

/// Hands pages that malloc keeps free back to the system, so that what is resident then is in use.
void return_freed_pages();

}  // namespace hindcast::bench
