#pragma once
/// Tensors that wait for the backward in the host's memory: <hindcast/checkpoint.h>. Valid C++17.

#include "base/api.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace hindcast {

struct OffloadOptions {
  /// Bytes. Smaller tensors stay where they are: a copy has a price of its own, whatever its size.
  std::size_t min_bytes = std::size_t{1} << 20;
  /// Copies of CUDA tensors go to page-locked memory, beside what the card computes meanwhile. False: to ordinary memory, and the host waits.
  bool pin_memory = true;
};

/// While alive, what autograd saves on this thread is copied to the host's memory, and back when the backward needs it.
///
///     { const hindcast::OffloadToHost offload; loss = model(x).sum(); }
///     loss.backward();
///
/// The semantics are those of torch.autograd.graph.save_on_cpu, with the stock engine and under hindcast alike. A tensor goes to the host
/// if it is on a device, dense, not smaller than `min_bytes`, and no leaf or view of a leaf, which lives on anyway. Every other one stays as
/// it is, and with it the error of a saved tensor that is modified in place: on a machine without a device this changes nothing.
///
/// Nests with checkpoints and with itself: the innermost counts. Destroy it on the thread that made it; on another one it logs an error, and
/// the first thread stays as it is. Throws c10::Error if hooks of saved tensors are disabled on this thread.
class HINDCAST_API OffloadToHost {
 public:
  explicit OffloadToHost(const OffloadOptions& options = {});
  ~OffloadToHost();
  OffloadToHost(const OffloadToHost&) = delete;
  OffloadToHost& operator=(const OffloadToHost&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns `fn(args...)`, called with OffloadToHost.
template <class Function, class... Args>
auto offload_to_host(const OffloadOptions& options, Function&& fn, Args&&... args) {
  const OffloadToHost offload(options);
  return std::invoke(std::forward<Function>(fn), std::forward<Args>(args)...);
}

template <class Function, class... Args, class = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, OffloadOptions>>>
auto offload_to_host(Function&& fn, Args&&... args) {
  return offload_to_host(OffloadOptions(), std::forward<Function>(fn), std::forward<Args>(args)...);
}

}  // namespace hindcast
