#include "codegen/cuda/graphs/plugin.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <map>
#include <mutex>

#include <unistd.h>

// LibTorch's own class for graphs, at::cuda::CUDAGraph, does the same and more: it tells the default generator of each capture, and leaves
// that broken where one fails. What is recorded here draws no random numbers.

namespace hindcast::codegen::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// The program never gets it: what others gave to it meanwhile would be captured too. One capture at a time is on it.
struct StreamOfCaptures {
  std::mutex mutex;
  cudaStream_t stream = nullptr;  // made in the first capture

  static StreamOfCaptures& of(c10::DeviceIndex device) {
    static auto& all_mutex = *new std::mutex;
    static auto* all = new std::map<c10::DeviceIndex, StreamOfCaptures>;
    const std::lock_guard lock(all_mutex);
    return (*all)[device];
  }
};

// Those of LibTorch's are counted from 1 on in one half or the other of a pair.
c10::MempoolId_t new_pool() {
  static std::atomic<unsigned long long> last = 1ULL << 40;
  return {0, ++last};
}

class Graph final : public CapturedGraph {
 public:
  Graph(c10::DeviceIndex device, c10::function_ref<void()> give) : device_(device) {
    StreamOfCaptures& captures = StreamOfCaptures::of(device);
    const std::lock_guard lock(captures.mutex);
    const c10::cuda::CUDAGuard on_device(device);
    if (captures.stream == nullptr) C10_CUDA_CHECK(cudaStreamCreateWithFlags(&captures.stream, cudaStreamNonBlocking));
    const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromExternal(captures.stream, device));
    try {
      capture(captures.stream, give);
      C10_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_, 0));
      for (const auto& segment : allocator::snapshot(pool_, /*include_traces=*/false).segments) bytes_ += segment.total_size;
    } catch (...) {
      release();
      throw;
    }
  }
  // A child of fork() has none of its parent's device, and no call to it succeeds.
  ~Graph() override {
    if (getpid() == process_) release();
  }

  void launch() override { C10_CUDA_CHECK(cudaGraphLaunch(executable_, c10::cuda::getCurrentCUDAStream(device_))); }
  void* executable() const override { return executable_; }
  size_t bytes() const override { return bytes_; }

 private:
  // cuBLAS' work space belongs to a stream. It is forgotten before and behind a capture, so that each graph has one in its own memory.
  void capture(cudaStream_t stream, c10::function_ref<void()> give) {
    at::cuda::clearCublasWorkspaces();
    const auto is_ours = [stream](cudaStream_t asked) { return asked == stream; };
    allocator::beginAllocateToPool(device_, pool_, is_ours);
    has_pool_ = true;
    at::HostAllocator* const host = at::getHostAllocator(at::kCUDA);
    host->begin_allocate_to_pool(pool_, [is_ours](c10::Stream asked) { return is_ours(c10::cuda::CUDAStream(asked).stream()); });
    has_host_pool_ = true;
    const auto end_pools = [&] {
      allocator::endAllocateToPool(device_, pool_);
      host->end_allocate_to_pool(pool_);
    };
    try {
      C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      try {
        give();
      } catch (...) {
        cudaStreamEndCapture(stream, &graph_);
        (void)cudaGetLastError();
        throw;
      }
      C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph_));
    } catch (...) {
      end_pools();
      at::cuda::clearCublasWorkspaces();
      throw;
    }
    end_pools();
    at::cuda::clearCublasWorkspaces();
  }

  void release() noexcept {
    try {
      const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
      if (executable_ != nullptr) C10_CUDA_CHECK_WARN(cudaGraphExecDestroy(executable_));
      if (graph_ != nullptr) C10_CUDA_CHECK_WARN(cudaGraphDestroy(graph_));
      if (has_host_pool_) at::getHostAllocator(at::kCUDA)->release_pool(pool_);
      if (!has_pool_) return;
      allocator::releasePool(device_, pool_);
      allocator::emptyCache(pool_);  // else it stays reserved until somebody runs out of memory
    } catch (const std::exception& error) {
      TORCH_WARN("hindcast: a CUDA graph's memory was not given back: ", error.what());
    }
  }

  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_ = new_pool();
  bool has_pool_ = false, has_host_pool_ = false;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
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
