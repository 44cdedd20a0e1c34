#include "codegen/cuda/graphs/plugin.h"
#include "codegen/cuda/graphs/released_pool.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include <unistd.h>

// Captures CUDA graphs. LibTorch's own class, at::cuda::CUDAGraph, also registers each capture with the default generator, and leaves the
// generator broken if a capture fails. Graphs captured here draw no random numbers, so this is not needed.

namespace hindcast::codegen::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// The stream for captures, one per device, made in the first capture. The program never gets this stream, since work that it enqueued there
// would be captured too.
cudaStream_t& stream_of_captures(c10::DeviceIndex device) {
  static auto* all = new std::map<c10::DeviceIndex, cudaStream_t>;
  return (*all)[device];
}

// A pool id that is not LibTorch's: those are counted from 1 on, in either half of the pair.
c10::MempoolId_t new_pool() {
  static std::atomic<unsigned long long> last = 1ULL << 40;
  return {0, ++last};
}

// cuBLAS' workspace belongs to a stream, and would outlive the graph in whose memory pool it is. Workspaces of other streams are kept: a
// graph of the program's own may contain the address of one.
void forget_work_spaces_of(cudaStream_t stream) {
  for (at::cuda::WorkspaceMapWithMutex* const spaces :
       {&at::cuda::cublas_handle_stream_to_workspace(), &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::unique_lock lock(spaces->mutex);
    for (auto space = spaces->map.begin(); space != spaces->map.end();) {
      space = std::get<1>(space->first) == stream ? spaces->map.erase(space) : std::next(space);
    }
  }
}

// While it lives, device memory for the stream is allocated from the pool.
class DevicePool {
 public:
  DevicePool(c10::DeviceIndex device, c10::MempoolId_t pool, cudaStream_t stream) : device_(device), pool_(pool) {
    allocator::beginAllocateToPool(device, pool, [stream](cudaStream_t asked) { return asked == stream; });
  }
  ~DevicePool() { allocator::endAllocateToPool(device_, pool_); }
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_;
};

// The same for pinned host memory.
class HostPool {
 public:
  HostPool(c10::MempoolId_t pool, cudaStream_t stream) : pool_(pool) {
    allocator()->begin_allocate_to_pool(pool, [stream](c10::Stream asked) { return c10::cuda::CUDAStream(asked).stream() == stream; });
  }
  ~HostPool() { allocator()->end_allocate_to_pool(pool_); }
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  static at::HostAllocator* allocator() { return at::getHostAllocator(at::kCUDA); }

 private:
  const c10::MempoolId_t pool_;
};

// In a child of fork() all CUDA calls fail.
bool is_child() {
  static const pid_t process = getpid();
  return getpid() != process;
}

// CUDA calls made while it lives do not invalidate a capture of another thread.
struct Relaxed {
  const c10::cuda::CUDAStreamCaptureModeGuard guard{cudaStreamCaptureModeRelaxed};
};

class Graph final : public CapturedGraph {
 public:
  Graph(c10::DeviceIndex device, c10::function_ref<void()> give) : device_(device) {
    TORCH_CHECK(allocator::name() == "native" && allocator::isEnabled(),
                "hindcast records with the allocator that LibTorch has built in, and with its cache alone; this one is ",
                allocator::name());
    const c10::cuda::CUDAGuard on_device(device);
    const Relaxed relaxed;
    cudaStream_t& stream = stream_of_captures(device);
    if (stream == nullptr) C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromExternal(stream, device));
    try {
      forget_work_spaces_of(stream);
      capture(stream, give);
      // Memory that a library allocates from the driver inside the graph and does not free is freed at the next launch.
      C10_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagAutoFreeOnLaunch));
      for (const auto& segment : allocator::snapshot(pool_, /*include_traces=*/false).segments) bytes_ += segment.total_size;
      forget_work_spaces_of(stream);
    } catch (...) {
      forget_work_spaces_of(stream);
      release();
      throw;
    }
  }
  ~Graph() override {
    if (!is_child()) release();
  }

  void launch() override {
    const c10::cuda::CUDAGuard on_device(device_);  // the default stream is that of the current device
    last_stream_ = c10::cuda::getCurrentCUDAStream(device_);
    C10_CUDA_CHECK(cudaGraphLaunch(executable_, *last_stream_));
  }
  void* executable() const override { return executable_; }
  size_t bytes() const override { return bytes_; }

 private:
  void capture(cudaStream_t stream, c10::function_ref<void()> give) {
    const DevicePool pool(device_, pool_, stream);
    has_pool_ = true;
    const HostPool host_pool(pool_, stream);
    has_host_pool_ = true;
    refuse_pools_of_the_program(stream);
    const c10::cuda::CUDAStreamCaptureModeGuard strict(cudaStreamCaptureModeThreadLocal);
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      give();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph_);
      (void)cudaGetLastError();
      throw;
    }
    C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph_));
  }

  // A memory pool that the program has activated (torch.cuda.use_mem_pool) takes precedence, so that the graph's memory would be allocated
  // from it: that pool might be destroyed before the graph.
  void refuse_pools_of_the_program(cudaStream_t stream) const {
    allocator::raw_delete(allocator::raw_alloc_with_stream(1, stream));
    TORCH_CHECK(!allocator::snapshot(pool_, /*include_traces=*/false).segments.empty(),
                "memory comes from a pool of the program's own, as within torch.cuda.use_mem_pool()");
  }

  void release() noexcept {
    try {
      const c10::cuda::CUDAGuard on_device(device_);
      const Relaxed relaxed;
      if (executable_ != nullptr) C10_CUDA_CHECK_WARN(cudaGraphExecDestroy(executable_));
      if (graph_ != nullptr) C10_CUDA_CHECK_WARN(cudaGraphDestroy(graph_));
      if (has_host_pool_) HostPool::allocator()->release_pool(pool_);
      if (!has_pool_) return;
      const ReleasedPool released(device_, pool_, last_stream_);
      if (released.can_be_emptied() && !released.empty(/*may_wait=*/true)) FullPools::of_process().add(released);
    } catch (const c10::Error& error) {
      TORCH_WARN("hindcast: a CUDA graph's memory was not given back: ", error.what_without_backtrace());
    } catch (const std::exception& error) {
      TORCH_WARN("hindcast: a CUDA graph's memory was not given back: ", error.what());
    }
  }

  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_ = new_pool();
  bool has_pool_ = false, has_host_pool_ = false;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  std::optional<c10::cuda::CUDAStream> last_stream_;
  size_t bytes_ = 0;
};

void give_back() {
  if (is_child()) return;
  const Relaxed relaxed;
  FullPools::of_process().empty();
}

// LibTorch's kernels compute random numbers from the generator's seed and its offset, the count of numbers drawn so far; so does this.
std::optional<uint64_t> draw(c10::DeviceIndex device) {
  constexpr uint64_t kDrawn = 4;  // LibTorch counts in fours
  const c10::cuda::CUDAGuard on_device(device);
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) return std::nullopt;
  at::PhiloxCudaState state;
  {
    auto* const generator = at::check_generator<at::CUDAGeneratorImpl>(at::cuda::detail::getDefaultCUDAGenerator(device));
    const std::lock_guard lock(generator->mutex_);
    state = generator->philox_cuda_state(kDrawn);
  }
  at::Philox4_32 numbers(state.seed_.val, /*subsequence=*/0, state.offset_.val / kDrawn);
  const uint64_t low = numbers();
  return uint64_t{numbers()} << 32 | low;
}

std::unique_ptr<CapturedGraph> capture(c10::DeviceIndex device, c10::function_ref<void()> give) {
  give_back();
  return std::make_unique<Graph>(device, give);
}

}  // namespace
}  // namespace hindcast::codegen::cuda

extern "C" __attribute__((visibility("default"))) const hindcast::codegen::cuda::CudaGraphsTable* hindcast_cuda_graphs_table() {
  static constexpr hindcast::codegen::cuda::CudaGraphsTable table = {hindcast::codegen::cuda::kCudaGraphsVersion,
                                                                     &hindcast::codegen::cuda::capture, &hindcast::codegen::cuda::give_back,
                                                                     &hindcast::codegen::cuda::draw};
  return &table;
}
