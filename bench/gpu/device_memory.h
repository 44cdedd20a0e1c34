#pragma once
// Memory that LibTorch's allocator has handed out on a device. On the CPU nothing is counted, and all is 0.

#include <c10/core/Device.h>

#include <cstdint>

namespace hindcast::bench::gpu {

int64_t live_bytes(c10::Device device);
/// The most that lived at once since restart_peak().
int64_t peak_bytes(c10::Device device);
void restart_peak(c10::Device device);

}  // namespace hindcast::bench::gpu
