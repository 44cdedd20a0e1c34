#pragma once
// Frees the memory pools of destroyed CUDA graphs.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <mutex>
#include <optional>
#include <vector>

namespace hindcast::codegen::cuda {

/// A pool of LibTorch's allocator whose graph is gone. Its memory cannot be reused until the pool is emptied: by this class, or by LibTorch
/// when an allocation finds no memory.
class ReleasedPool {
 public:
  /// `last_stream`: the stream of the graph's last launch; nullopt if it was never launched.
  ReleasedPool(c10::DeviceIndex device, c10::MempoolId_t pool, std::optional<c10::cuda::CUDAStream> last_stream)
      : device_(device), pool_(pool), last_stream_(last_stream) {
    c10::cuda::CUDACachingAllocator::releasePool(device, pool);
  }

  /// False if the last stream was not created by LibTorch: it may have been destroyed, so it cannot be queried for completion.
  bool can_be_emptied() const {
    return !last_stream_ || last_stream_->stream() == nullptr ||
           last_stream_->id() != reinterpret_cast<c10::StreamId>(last_stream_->stream());
  }

  /// Returns false if the pool cannot be emptied now. LibTorch's allocator throws while any thread captures a graph on the device, or
  /// allocates to a pool.
  bool empty(bool may_wait) const {
    const c10::cuda::CUDAGuard on_device(device_);
    if (!is_done(may_wait)) return false;
    try {
      c10::cuda::CUDACachingAllocator::emptyCache(pool_);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }

 private:
  // Whether the last launch is done, and the work after it on its stream, which reads results from the pool. LibTorch unmaps expandable
  // segments without waiting for that.
  bool is_done(bool may_wait) const {
    if (!last_stream_) return true;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const bool can_ask = cudaStreamIsCapturing(*last_stream_, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone;
    const bool is_done = can_ask && (may_wait ? cudaStreamSynchronize(*last_stream_) : cudaStreamQuery(*last_stream_)) == cudaSuccess;
    if (!is_done) (void)cudaGetLastError();
    return is_done;
  }

  c10::DeviceIndex device_;
  c10::MempoolId_t pool_;
  std::optional<c10::cuda::CUDAStream> last_stream_;
};

/// The pools that could not be emptied when their graphs were destroyed.
class FullPools {
 public:
  static FullPools& of_process() {
    static auto& all = *new FullPools;
    return all;
  }

  void add(const ReleasedPool& pool) {
    const std::lock_guard lock(mutex_);
    pools_.push_back(pool);
  }
  /// Tries to empty all pools. Does not wait for a stream, and calls CUDA outside the lock.
  void empty() {
    std::vector<ReleasedPool> tried;
    {
      const std::lock_guard lock(mutex_);
      tried.swap(pools_);
    }
    std::erase_if(tried, [](const ReleasedPool& pool) { return pool.empty(/*may_wait=*/false); });
    const std::lock_guard lock(mutex_);
    pools_.insert(pools_.end(), tried.begin(), tried.end());
  }

 private:
  std::mutex mutex_;
  std::vector<ReleasedPool> pools_;
};

}  // namespace hindcast::codegen::cuda
