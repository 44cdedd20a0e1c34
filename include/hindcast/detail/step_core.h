#pragma once
// A training step over lists of tensors: the untyped core of train_step(). Valid C++17.

#include <hindcast/detail/aot_core.h>
#include <hindcast/train_step_options.h>

#include <memory>

namespace hindcast::detail {

class HINDCAST_API StepCore {
 public:
  /// Throws std::invalid_argument for a bad option, and for an optimizer without parameters.
  StepCore(torch::optim::Optimizer& optimizer, TrainStepOptions options);
  StepCore(StepCore&&) noexcept;
  StepCore& operator=(StepCore&&) noexcept;
  ~StepCore();

  /// `call.function` returns the loss first. Returns what it returned, detached.
  FunctionOutput call(const FunctionCall& call);
  double grad_norm() const;
  TrainStepStats stats() const;
  void reset();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace hindcast::detail
