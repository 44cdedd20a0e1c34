#include "codegen/cuda/graphs/plugin.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>
#include <set>

#include <unistd.h>

namespace hindcast::codegen::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// cuBLAS has some MiB of work space for each stream that it was used on in a thread, and keeps them. So all graphs of a device are captured
// on one stream, and the space is asked for before a thread's first capture, so that it lies in no graph's memory.
c10::cuda::CUDAStream stream_of_captures(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device);
  return found != streams.end() ? found->second : streams.emplace(device, c10::cuda::getStreamFromPool(false, device)).first->second;
}

void ask_for_work_space(c10::cuda::CUDAStream stream) {
  static thread_local std::set<c10::DeviceIndex> devices;
  if (!devices.insert(stream.device_index()).second) return;
  const c10::cuda::CUDAStreamGuard guard(stream);
  const at::Tensor one = at::ones({1, 1}, at::TensorOptions().device(stream.device()));
  at::mm(one, one);
}

// What at::cuda::CUDAGraph leaves begun where a capture fails.
void end_allocations(c10::DeviceIndex device, at::cuda::MempoolId_t pool) {
  const auto try_to = [](auto end) {
    try {
      end();
    } catch (const std::exception&) {  // it was not begun
    }
  };
  try_to([&] { allocator::endAllocateToPool(device, pool); });
  try_to([&] { allocator::releasePool(device, pool); });
  try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
  try_to([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool); });
}

class Graph final : public CapturedGraph {
 public:
  Graph(c10::DeviceIndex device, c10::function_ref<void()> give)
      : device_(device), pool_(at::cuda::graph_pool_handle()), graph_(std::make_unique<at::cuda::CUDAGraph>(/*keep_graph=*/true)) {
    const c10::cuda::CUDAStream stream = stream_of_captures(device);
    ask_for_work_space(stream);
    const c10::cuda::CUDAStreamGuard on_stream(stream);  // and on its device
    bool has_begun = false;
    try {
      graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      has_begun = true;
      give();
      graph_->capture_end();
      graph_->instantiate();
    } catch (...) {
      give_up(has_begun);
      throw;
    }
    for (const auto& segment : allocator::snapshot(pool_, /*include_traces=*/false).segments) bytes_ += segment.total_size;
  }

  // A child of fork() has none of its parent's device, and no call to it succeeds.
  ~Graph() override {
    if (getpid() != process_) (void)graph_.release();
  }

  void launch() override { graph_->replay(); }
  void* executable() const override { return graph_->raw_cuda_graph_exec(); }
  size_t bytes() const override { return bytes_; }

 private:
  // The stream captures no longer, and nothing is left of what was.
  void give_up(bool has_begun) {
    try {
      if (has_begun) graph_->capture_end();  // CUDA says what was wrong a second time, or that all was well
      graph_.reset();
    } catch (const std::exception&) {
      graph_.reset();
      end_allocations(device_, pool_);
    }
    if (!has_begun) end_allocations(device_, pool_);
  }

  const c10::DeviceIndex device_;
  const at::cuda::MempoolId_t pool_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  size_t bytes_ = 0;
  const pid_t process_ = getpid();
};

std::unique_ptr<CapturedGraph> capture(c10::DeviceIndex device, c10::function_ref<void()> give) {
  return std::make_unique<Graph>(device, give);
}

}  // namespace
}  // namespace hindcast::codegen::cuda

extern "C" __attribute__((visibility("default"))) const hindcast::codegen::cuda::CudaGraphsTable* hindcast_cuda_graphs_table() {
  static constexpr hindcast::codegen::cuda::CudaGraphsTable table = {hindcast::codegen::cuda::kCudaGraphsVersion,
                                                                     &hindcast::codegen::cuda::capture};
  return &table;
}
