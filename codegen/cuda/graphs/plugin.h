#pragma once
// The interface between libhindcast_cuda_graphs.so and hindcast. Only the plug-in links libtorch_cuda: it captures CUDA graphs with
// LibTorch's allocator, and draws from LibTorch's generators; hindcast itself links nothing of CUDA. Both are built together, by one
// compiler.
//
// Any change here requires a new kCudaGraphsVersion.

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace hindcast::codegen::cuda {

inline constexpr uint32_t kCudaGraphsVersion = 3;

/// One CUDA graph and its memory pool.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// Launches on the current stream of its device.
  virtual void launch() = 0;
  /// The driver's CUgraphExec.
  virtual void* executable() const = 0;
  /// Bytes of the segments that LibTorch's allocator keeps for the graph.
  virtual size_t bytes() const = 0;

 protected:
  CapturedGraph() = default;
};

struct CudaGraphsTable {
  uint32_t version;  // first in all versions
  /// Captures the work that `give` enqueues. The process makes one capture at a time. `give` runs with a dedicated stream as the current
  /// one, in CUDA's thread-local capture mode. Throws what `give` throws, and LibTorch's error if something cannot be captured; the current
  /// stream is restored in any case.
  std::unique_ptr<CapturedGraph> (*capture)(c10::DeviceIndex device, c10::function_ref<void()> give);
  /// Frees the memory of destroyed graphs that LibTorch's allocator could not free at that time. Each capture() does so too.
  void (*give_back)();
  /// Draws a number from the device's default generator, on the host. nullopt while the current stream is capturing: each launch of the
  /// graph would have to draw a new number.
  std::optional<uint64_t> (*draw)(c10::DeviceIndex device);
};

/// The function that the shared object exports under the name below.
using CudaGraphsEntry = const CudaGraphsTable* (*)();
#define HINDCAST_CUDA_GRAPHS_ENTRY "hindcast_cuda_graphs_table"

}  // namespace hindcast::codegen::cuda
