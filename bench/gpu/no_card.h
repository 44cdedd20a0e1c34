#pragma once
// What the host does for a launch, measured where there is no card: kernels are written, and their launches go nowhere.

namespace hindcast::bench::gpu {

/// Installs a card that does nothing, and registers the rows host/...: one call of a kernel each, from the tensors in their slots to the
/// results in theirs. Memory comes from LibTorch's allocator for the CPU; what the driver takes for a launch is not in it.
void register_host_times();

}  // namespace hindcast::bench::gpu
