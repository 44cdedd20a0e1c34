#pragma once
/// A training step in one call. Valid C++17.
///
///     torch::optim::AdamW optimizer(model->parameters(), 1e-3);
///     auto step = hindcast::train_step(optimizer, model, [](auto& model, const at::Tensor& x, const at::Tensor& y) {
///       return torch::mse_loss(model.forward(x), y);
///     });
///     for (const auto& [x, y] : batches) at::Tensor loss = step(x, y);

#include "engine/aot/aot_function.h"
#include "engine/aot/aot_module.h"
#include "engine/aot/typed_call.h"
#include "engine/train/step_core.h"

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hindcast {

/// What train_step() returns. Movable. Not for several threads at a time, as the optimizer itself is not.
template <class LossFunction>
class TrainStep {
 public:
  TrainStep(torch::optim::Optimizer& optimizer, LossFunction function, TrainStepOptions options)
      : function_(std::move(function)), static_argnums_(options.aot.static_argnums), core_(optimizer, std::move(options)) {}

  /// zero_grad(), the function, backward(), clipping, and the optimizer's step(). Returns what the function returned, without history.
  template <class... Args>
  auto operator()(const Args&... args) {
    return call_with({}, args...);
  }

  /// The same, where the loss depends on `facts` too.
  template <class... Args>
  auto call_with(std::string facts, const Args&... args) {
    using Result = std::invoke_result_t<LossFunction&, Args&...>;
    engine::FlatArguments flat = engine::flatten(std::move(facts), static_argnums_, args...);
    const auto run = [&](const std::vector<at::Tensor>& tensors) {
      return engine::run_on<Result>(function_, tensors, std::tuple<Args...>(args...));
    };
    return engine::result_of<Result>(core_.call({std::move(flat.tensors), std::move(flat.facts), std::move(flat.is_static), run}));
  }

  /// The norm of all gradients before the last step clipped them. 0: no ClipGradNorm was asked for. Waits for the device.
  double grad_norm() const { return core_.grad_norm(); }
  TrainStepStats stats() const { return core_.stats(); }
  /// Forgets what was compiled.
  void reset() { core_.reset(); }

 private:
  LossFunction function_;
  std::vector<std::size_t> static_argnums_;
  engine::StepCore core_;
};

/// A step of `optimizer`, which must live as long as the result and stay where it is. State, parameter groups, learning rates and schedulers
/// stay the optimizer's.
///
/// `function` takes tensors, and what engine/aot/tree.h knows. It returns the loss, a tensor of one number, or a pair, tuple or vector that
/// begins with it. It is compiled as aot_function() compiles, together with the gradients of all parameters: the first call runs it, later
/// ones run one program, which goes through no autograd graph and writes no `.grad()`. So what it reads besides its arguments is invisible:
/// take the module as an argument (below), or other such things as numbers.
///
/// A step runs as zero_grad(), backward() and step() where a parameter has a hook, under DistributedDataParallel, with LBFGS, where an
/// argument has a history or is a parameter, and where the function calls backward() itself. stats() says why. In a program, only the
/// optimizer's parameters get gradients; arguments and other leaves get none.
///
/// A loss that fails, is no scalar or needs no gradient throws, as in LibTorch, and changes nothing.
template <class LossFunction, class = std::enable_if_t<!IsModule<LossFunction>::value>>
TrainStep<LossFunction> train_step(torch::optim::Optimizer& optimizer, LossFunction function, TrainStepOptions options = {}) {
  return {optimizer, std::move(function), std::move(options)};
}

/// TrainStep of `function(*module, arguments...)`. Of the module it sees what aot_module() sees: submodules, their classes, whether each trains,
/// parameters and buffers.
template <class Module, class LossFunction>
class ModuleTrainStep {
 public:
  ModuleTrainStep(torch::optim::Optimizer& optimizer, std::shared_ptr<Module> module, LossFunction function, TrainStepOptions options)
      : module_(std::move(module)), step_(optimizer, Loss{module_, std::move(function)}, named(module_, std::move(options))) {}

  template <class... Args>
  auto operator()(const Args&... args) {
    return step_.call_with(engine::facts_of(*module_), args...);
  }
  double grad_norm() const { return step_.grad_norm(); }
  TrainStepStats stats() const { return step_.stats(); }
  void reset() { step_.reset(); }

 private:
  struct Loss {
    std::shared_ptr<Module> module;
    LossFunction function;
    template <class... Args>
    auto operator()(Args&... args) {
      return function(*module, args...);
    }
  };

  static TrainStepOptions named(const std::shared_ptr<Module>& module, TrainStepOptions options) {
    if (!options.aot.tensor_names) {
      options.aot.tensor_names = [module](const std::vector<at::Tensor>& tensors) { return engine::names_in(*module, tensors); };
    }
    return options;
  }

  std::shared_ptr<Module> module_;
  TrainStep<Loss> step_;
};

template <class Module, class LossFunction>
ModuleTrainStep<Module, LossFunction> train_step(torch::optim::Optimizer& optimizer, std::shared_ptr<Module> module, LossFunction function,
                                                 TrainStepOptions options = {}) {
  return {optimizer, std::move(module), std::move(function), std::move(options)};
}
template <class Holder, class LossFunction, class Module = typename Holder::ContainedType>
ModuleTrainStep<Module, LossFunction> train_step(torch::optim::Optimizer& optimizer, const Holder& module, LossFunction function,
                                                 TrainStepOptions options = {}) {
  return {optimizer, module.ptr(), std::move(function), std::move(options)};
}

}  // namespace hindcast
