#pragma once
// Pools of LibTorch's allocator that their graphs no longer need.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <mutex>
#include <optional>
#include <vector>

namespace hindcast::codegen::cuda {

/// What such a pool has is of use to nobody else until the pool is emptied: by us, or by an allocation that finds no memory.
class ReleasedPool {
 public:
  /// `last_stream`: that its graph was launched on; none: it never was.
  ReleasedPool(c10::DeviceIndex device, c10::MempoolId_t pool, std::optional<c10::cuda::CUDAStream> last_stream)
      : device_(device), pool_(pool), last_stream_(last_stream) {
    c10::cuda::CUDACachingAllocator::releasePool(device, pool);
  }

  /// It cannot be told when the last launch on a stream is done that LibTorch did not make, and that may be gone.
  bool can_be_emptied() const {
    return !last_stream_ || last_stream_->stream() == nullptr ||
           last_stream_->id() != reinterpret_cast<c10::StreamId>(last_stream_->stream());
  }

  /// False: not now. LibTorch's allocator throws while any thread captures a graph on the device, or allocates to a pool.
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
  // The last launch, and what followed it on its stream: results are read from the pool there. Expandable segments are unmapped without
  // that anybody waits.
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

/// Those that could not be emptied when their graphs went.
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
  /// Waits for no stream, and asks the device outside of the lock.
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
