#pragma once
// An accelerator with two devices and no hardware, on LibTorch's key for such (PrivateUse1). The stock engine treats it like CUDA: device
// threads, streams, events. Memory is the host's and ops are the CPU's, run at once; only the order is modelled.
//
// Each stream has a clock, and knows how far it has waited for the others (a vector clock, as in race detectors). Memory remembers who
// wrote and who read it. An op that accesses memory written by another stream, without having waited for it, is an *unordered access*,
// which on hardware would be a race. So is memory that is freed while a stream may still read it, if the allocator was not told of that
// stream (record_stream): the allocator would reuse it for the next op of the stream that it was allocated on.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tests/support/stream_model.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::tests {

/// Call before the process's first backward. From then on hindcast takes over its backwards.
void install_fake_device();

inline at::Device fake(int index = 0) { return {at::kPrivateUse1, static_cast<c10::DeviceIndex>(index)}; }

/// Stream `id` of a device; 0 is the default one.
inline c10::Stream stream(int id, int device = 0) { return c10::Stream(c10::Stream::UNSAFE, fake(device), id); }

/// A leaf with its own numbers, created on the current stream of its device, which may be the CPU.
at::Tensor leaf(uint64_t seed, at::Device device, c10::IntArrayRef sizes = {4, 4});

/// Later work of `later` waits for the work of `earlier` so far.
void order(const c10::Stream& earlier, const c10::Stream& later);

/// The current streams of both devices in this thread, and which device is current: "device 0, streams 1 0".
std::string current_streams();

/// Unordered accesses found since the last call.
std::vector<std::string> take_unordered();

/// A copy on the CPU. It waits for the current stream of the tensor's device, and for no other.
at::Tensor to_cpu(const at::Tensor& tensor);

/// The host waits for everything, as between two independent programs.
void synchronize_fake_device();

/// While it lives, freed memory is reused for the next request of the same size on its stream, as by a caching allocator. Else addresses
/// are arbitrary.
class CachedFakeMemory {
 public:
  CachedFakeMemory();
  ~CachedFakeMemory();
  CachedFakeMemory(const CachedFakeMemory&) = delete;
  CachedFakeMemory& operator=(const CachedFakeMemory&) = delete;
};
/// Bytes of the device in use by tensors, except those of graphs (tests/support/fake_graph.h).
int64_t fake_bytes_in_use();
/// The block that contains an address; null: no tensor's, or one of a graph's.
StreamModel::Block* block_of_fake_memory(const void* address);

/// How often events were recorded, and waited for, since the last call.
struct EventCounts {
  int recorded = 0, waited = 0;
};
EventCounts take_event_counts();

}  // namespace hindcast::tests
