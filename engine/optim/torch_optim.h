#pragma once
// Adapters for the optimizers of torch::optim: create their state as they do, and turn their settings into updates.

#include "engine/optim/updates.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string_view>

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace hindcast::engine {

/// One class of optimizers.
class TorchOptim {
 public:
  virtual ~TorchOptim() = default;
  TorchOptim(const TorchOptim&) = delete;
  TorchOptim& operator=(const TorchOptim&) = delete;

  /// The adapter for the optimizer's class. nullptr for classes that are not supported, and for derived classes.
  static std::unique_ptr<TorchOptim> of(torch::optim::Optimizer& optimizer);

  /// Adds the update of a parameter that has a gradient. Returns "" if it was added; the state has then counted the step, with the tensor
  /// versions that the optimizer would leave. Otherwise returns the reason; nothing has changed, and step_alone() must do the update.
  virtual std::string_view add(Updates& updates, torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) = 0;
  /// True if add() would create the parameter's state.
  virtual bool makes_state(torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) const = 0;
  /// Undoes the step count of the last add() for this parameter.
  virtual void take_back(const at::Tensor& parameter) = 0;
  /// Runs the class's own step for this parameter alone.
  virtual void step_alone(torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) = 0;

 protected:
  TorchOptim() = default;
};

}  // namespace hindcast::engine
