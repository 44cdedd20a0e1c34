#include "bench/gpu/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace hindcast::bench::gpu {
namespace {

c10::CachingAllocator::Stat bytes_on(c10::Device device) {
  if (!device.is_cuda()) return {};
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes.at(kAll);
}

}  // namespace

int64_t live_bytes(c10::Device device) { return bytes_on(device).current; }
int64_t peak_bytes(c10::Device device) { return bytes_on(device).peak; }
void restart_peak(c10::Device device) {
  if (device.is_cuda()) c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

}  // namespace hindcast::bench::gpu
