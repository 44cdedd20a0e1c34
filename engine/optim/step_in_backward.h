#pragma once
/// The optimizer's step inside of the backward: a parameter is updated when its gradient is final, and the gradient is freed. All gradients
/// are then never in memory together. Valid C++17.
///
///     torch::optim::AdamW optimizer(model->parameters(), 1e-3);
///     auto stepping = hindcast::step_in_backward(optimizer);
///     ...
///     loss.backward();                                        // in place of backward(), optimizer.step() and zero_grad()

#include "base/api.h"

#include <cstdint>
#include <memory>

namespace torch::optim {
class Optimizer;
}

namespace hindcast {

/// While it lives, backwards step. Movable.
class HINDCAST_API StepInBackward {
 public:
  StepInBackward(StepInBackward&&) noexcept;
  StepInBackward& operator=(StepInBackward&&) noexcept;
  ~StepInBackward();

  /// As CompiledStep::counts(): updates by kernels, and by the optimizer's own code.
  uint64_t compiled() const;
  uint64_t original() const;

 private:
  friend HINDCAST_API StepInBackward step_in_backward(torch::optim::Optimizer&);
  class Impl;
  explicit StepInBackward(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Each backward that writes the gradient of one of the parameters that `optimizer` has now makes the parameter's update, as
/// compiled_step() would, and then resets `.grad()`. So each backward is a step: gradients of several are not added up, and a norm of all
/// gradients cannot be clipped. A callback of on_grad_ready() that is registered later finds no gradient. A graph that saved the parameter,
/// and is not done with it, throws as it does where a parameter is modified in place: one that was retained, or one that reads the
/// parameter by way of detach() behind its gradient.
///
/// `optimizer` must live as long as the result and stay where it is. Throws std::invalid_argument for an optimizer that is none of SGD,
/// Adam, AdamW, RMSprop and Adagrad, and for a parameter that is no leaf that requires a gradient.
[[nodiscard]] HINDCAST_API StepInBackward step_in_backward(torch::optim::Optimizer& optimizer);

}  // namespace hindcast
