#pragma once
// The optimizers of torch::optim: their state, made as they make it, and their settings as updates.

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

  /// Of the class itself, and of none that is derived from it. Null for others.
  static std::unique_ptr<TorchOptim> of(torch::optim::Optimizer& optimizer);

  /// Adds the update of a parameter that has a gradient. Empty: its state has counted the step, and its versions are those that the
  /// optimizer would leave. Else nothing has changed, and step_alone() must make the update.
  virtual std::string_view add(Updates& updates, torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) = 0;
  /// add() would make the parameter's state.
  virtual bool makes_state(torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) const = 0;
  /// What add() counted last, of this parameter, did not happen.
  virtual void take_back(const at::Tensor& parameter) = 0;
  /// By the class' own step, for this parameter alone.
  virtual void step_alone(torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) = 0;

 protected:
  TorchOptim() = default;
};

}  // namespace hindcast::engine
