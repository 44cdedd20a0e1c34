#include "codegen/kernel/kept_counters.h"

#include "base/fork.h"
#include "codegen/fuse/random_ops.h"
#include "codegen/kernel/backend.h"

#include <ATen/TensorUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

namespace hindcast::codegen {
namespace {

constexpr int64_t kFewest = 4096, kMost = 1 << 18;  // counters per stream: at most 1 MiB
constexpr size_t kMostStreams = 8;

class Kept {
 public:
  /// The counters of a stream; undefined if the stream has no counters yet, or too few.
  at::Tensor of(const c10::Stream& stream, int64_t numel) {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, counters] : by_stream_) {
      if (of == stream && counters.numel() >= numel) return counters;
    }
    return {};
  }
  void keep(const c10::Stream& stream, const at::Tensor& counters) {
    ByStream gone;  // freed after the lock is released
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(by_stream_.begin(), by_stream_.end(), [&](const auto& one) { return one.first == stream; });
    if (found != by_stream_.end()) {
      gone.push_back(std::exchange(*found, {stream, counters}));
    } else {
      if (by_stream_.size() == kMostStreams) gone.swap(by_stream_);
      by_stream_.emplace_back(stream, counters);
    }
  }
  size_t forget() {
    ByStream gone;
    {
      const std::lock_guard lock(mutex_);
      gone.swap(by_stream_);
    }
    if (getpid() != process_) return new ByStream(std::move(gone)), 0;  // leaked: a forked child must not call the accelerator
    size_t bytes = 0;
    for (const auto& [stream, counters] : gone) bytes += counters.nbytes();
    return bytes;
  }

 private:
  using ByStream = std::vector<std::pair<c10::Stream, at::Tensor>>;
  const pid_t process_ = getpid();
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  ByStream by_stream_;
};

Kept& kept() {
  static constinit base::MadeOnce<Kept> kept;
  return kept.get();
}

at::Tensor new_counters(int64_t numel, c10::Device device) {
  const c10::InferenceMode ordinary(false);  // must not be inference tensors, since later readers may be outside inference mode
  return at::arange(numel, at::device(device).dtype(at::kInt));
}

[[maybe_unused]] const bool counters_are_kept = (make_counters_by(kept_counters), true);

}  // namespace

at::Tensor kept_counters(at::IntArrayRef size, c10::Device device) {
  const int64_t numel = c10::multiply_integers(size);
  const Backend* const backend = backend_of(device.type());
  const bool is_captured = backend == nullptr || backend->is_captured(device).value_or(true);
  if (numel > kMost || is_captured) return new_counters(numel, device).view(size);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  at::Tensor all = kept().of(stream, numel);
  if (!all.defined()) {
    all = new_counters(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(numel, kFewest)))), device);
    kept().keep(stream, all);
  }
  return at::as_strided(all, size, at::detail::defaultStrides(size));
}

size_t forget_counters() { return kept().forget(); }

}  // namespace hindcast::codegen
