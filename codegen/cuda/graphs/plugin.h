#pragma once
// What libhindcast_cuda_graphs.so and hindcast agree on. The plug-in is what links libtorch_cuda: it captures graphs with LibTorch's
// allocator, and draws from its generators; hindcast itself links nothing of CUDA. Both are built together, by one compiler.
//
// A change here takes a new number in kCudaGraphsVersion.

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace hindcast::codegen::cuda {

inline constexpr uint32_t kCudaGraphsVersion = 3;

/// One CUDA graph, and the memory that it was given.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// On the current stream of its device.
  virtual void launch() = 0;
  /// CUgraphExec of the driver.
  virtual void* executable() const = 0;
  /// Of segments that LibTorch's allocator keeps for it.
  virtual size_t bytes() const = 0;

 protected:
  CapturedGraph() = default;
};

struct CudaGraphsTable {
  uint32_t version;  // first in all versions
  /// `give` runs with a stream of its own as the current one, in CUDA's mode that watches this thread alone. Throws what `give` throws, and
  /// what LibTorch says where something cannot be captured; the stream is as it was then.
  std::unique_ptr<CapturedGraph> (*capture)(c10::DeviceIndex device, c10::function_ref<void()> give);
  /// Memory of graphs that went while LibTorch's allocator could give nothing back. Each capture() does so, too.
  void (*give_back)();
  /// A number of the device's default generator, which the host knows at once. None while the current stream is captured: a graph that is
  /// launched again must draw others.
  std::optional<uint64_t> (*draw)(c10::DeviceIndex device);
};

/// What the shared object exports, under the name below.
using CudaGraphsEntry = const CudaGraphsTable* (*)();
#define HINDCAST_CUDA_GRAPHS_ENTRY "hindcast_cuda_graphs_table"

}  // namespace hindcast::codegen::cuda
