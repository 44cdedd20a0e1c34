#pragma once
/// Saved tensors kept in host memory until the backward: <hindcast/checkpoint.h>. Valid C++17.

#include <hindcast/api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace hindcast {

struct OffloadOptions {
  /// In bytes. Smaller tensors stay where they are: each copy has a fixed cost, whatever its size.
  std::size_t min_bytes = std::size_t{1} << 20;
  /// True: CUDA tensors are copied to page-locked memory, while the card computes. False: to ordinary memory, and the host waits.
  bool pin_memory = true;
};

/// While alive, tensors that autograd saves on this thread are copied to host memory, and back when the backward needs them.
///
///     { const hindcast::OffloadToHost offload; loss = model(x).sum(); }
///     loss.backward();
///
/// The semantics are those of torch.autograd.graph.save_on_cpu, with the stock engine and under hindcast. A tensor is moved to the host if
/// it is on a device, dense, not smaller than `min_bytes`, and not a leaf or a view of a leaf, which stays alive anyway. Every other tensor
/// is saved as usual, and its in-place modification is an error as usual: without a device this changes nothing.
///
/// Nests with checkpoints and with itself: the innermost applies. Destroy it on the thread that made it; on another one it logs an error,
/// and it stays in effect on the first thread. Throws c10::Error if saved-tensor hooks are disabled on this thread.
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

/// Returns `fn(args...)`, called under OffloadToHost.
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
