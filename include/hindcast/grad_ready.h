#pragma once
// Post-accumulate-grad hooks from C++. LibTorch has one slot for such a hook on each leaf and no public call to fill it.

#include <hindcast/api.h>

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace hindcast {

namespace hooks {
class GradReadyList;
}

/// Removes its callback; may outlive the tensor. Copies refer to the same callback.
class HINDCAST_API GradReadyHandle {
 public:
  GradReadyHandle() = default;
  /// Stops further calls, also when called from inside a callback. A second call does nothing.
  void remove();

 private:
  friend GradReadyHandle on_grad_ready(const at::Tensor&, std::function<void(const at::Tensor&)>);
  std::weak_ptr<hooks::GradReadyList> list_;
  uint64_t id_ = 0;
};

/// Calls `fn(param)` each time a backward has written `param.grad()`: with the stock engine and under hindcast alike.
/// Callbacks run in order of registration, after a post-accumulate hook that was there before.
/// Throws std::invalid_argument if `param` is not a leaf that requires grad.
HINDCAST_API GradReadyHandle on_grad_ready(const at::Tensor& param, std::function<void(const at::Tensor&)> fn);

}  // namespace hindcast
