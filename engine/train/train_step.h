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
#include "engine/train/step_core.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hindcast {

/// What train_step() gives. Movable. Not for several threads at a time, as the optimizer itself is not.
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
    tree::Flatten flat{{}, std::move(facts)};
    std::vector<bool> is_static;
    std::size_t number = 0;
    (
        [&] {
          tree::visit(args, flat);
          is_static.resize(flat.tensors.size(),
                           std::find(static_argnums_.begin(), static_argnums_.end(), number++) != static_argnums_.end());
        }(),
        ...);
    const auto run = [&](const std::vector<at::Tensor>& tensors) {
      std::tuple<Args...> given(args...);
      tree::Refill refill{tensors};
      tree::visit(given, refill);
      Result result = std::apply(function_, given);
      tree::Flatten of_result;
      tree::visit(result, of_result);
      tree::Strip strip;
      tree::visit(result, strip);
      return engine::FunctionOutput{std::move(of_result.tensors), std::make_shared<const Result>(std::move(result)),
                                    std::move(of_result.facts)};
    };
    const engine::FunctionOutput output = core_.call({std::move(flat.tensors), std::move(flat.facts), std::move(is_static), run});
    Result result = *static_cast<const Result*>(output.shape.get());
    tree::Refill refill{output.tensors};
    tree::visit(result, refill);
    return result;
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
/// Steps whose gradients somebody watches run as zero_grad(), backward() and step(): where a parameter has a hook, under
/// DistributedDataParallel, with LBFGS, where an argument has a history or is a parameter, and where the function calls backward() itself.
/// stats() says why. In a program, leaves that are no parameters of the optimizer get no gradient, arguments too.
///
/// A loss that fails, is no scalar or needs no gradient throws, as in LibTorch, and changes nothing.
template <class LossFunction, class = std::enable_if_t<!IsModule<LossFunction>::value>>
TrainStep<LossFunction> train_step(torch::optim::Optimizer& optimizer, LossFunction function, TrainStepOptions options = {}) {
  return {optimizer, std::move(function), std::move(options)};
}

/// TrainStep of `function(*module, arguments...)`. What is seen of the module is what aot_module() sees: its submodules, whether they train,
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
