#pragma once
/// The optimizer's step inside the backward: a parameter is updated when its gradient is final, and the gradient is freed. So the gradients
/// are never all in memory together. Valid C++17.
///
///     torch::optim::AdamW optimizer(model->parameters(), 1e-3);
///     auto stepping = hindcast::step_in_backward(optimizer);
///     ...
///     loss.backward();                                        // in place of backward(), optimizer.step() and zero_grad()

#include <hindcast/api.h>

#include <cstdint>
#include <memory>

namespace torch::optim {
class Optimizer;
}

namespace hindcast {

/// While alive, each backward updates parameters. Movable.
class HINDCAST_API StepInBackward {
 public:
  StepInBackward(StepInBackward&&) noexcept;
  StepInBackward& operator=(StepInBackward&&) noexcept;
  ~StepInBackward();

  /// Updates by kernels, and by the optimizer's own code, as in CompiledStep::counts().
  uint64_t compiled() const;
  uint64_t original() const;

 private:
  friend HINDCAST_API StepInBackward step_in_backward(torch::optim::Optimizer&);
  class Impl;
  explicit StepInBackward(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Each backward that writes the gradient of a parameter that `optimizer` has now updates the parameter, as compiled_step() would, and then
/// resets `.grad()`. So each backward is a step: gradients of several backwards are not added up, and a norm of all gradients cannot be
/// clipped. A callback of on_grad_ready() that is registered later finds no gradient. A graph that saved the parameter and still needs it
/// throws, as it does for a parameter that is modified in place: a retained graph, or one that reads the parameter through detach() after
/// its gradient is final.
///
/// `optimizer` must outlive the result and must not move. Throws std::invalid_argument for an optimizer other than SGD, Adam, AdamW,
/// RMSprop and Adagrad, and for a parameter that is not a leaf that requires a gradient.
[[nodiscard]] HINDCAST_API StepInBackward step_in_backward(torch::optim::Optimizer& optimizer);

}  // namespace hindcast
