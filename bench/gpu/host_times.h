#pragma once
// The host's work for a hit, measured without a card: kernels are written, and their launches do nothing.

namespace hindcast::bench::gpu {

/// Installs a card that does nothing, and registers rows:
///
/// - host/...: one call of a kernel each, from the tensors in their slots to the results in theirs.
/// - hit/...: whole hits of rows whose tensors are small. ATen's operators run on the CPU; `library_us` has their time.
///
/// Memory comes from LibTorch's allocator for the CPU. Launches go through the library's card to a driver that returns at once: the
/// driver's own time is not included.
void register_host_times(int rounds);

}  // namespace hindcast::bench::gpu
