#pragma once
/// A training step in one call. Valid C++17.
///
///     torch::optim::AdamW optimizer(model->parameters(), 1e-3);
///     auto step = hindcast::train_step(optimizer, model, [](auto& model, const at::Tensor& x, const at::Tensor& y) {
///       return torch::mse_loss(model.forward(x), y);
///     });
///     for (const auto& [x, y] : batches) at::Tensor loss = step(x, y);

#include <hindcast/aot_function.h>
#include <hindcast/aot_module.h>
#include <hindcast/detail/step_core.h>
#include <hindcast/detail/typed_call.h>

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hindcast {

/// Returned by train_step(). Movable. Not thread-safe, like the optimizer itself.
template <class LossFunction>
class TrainStep {
 public:
  TrainStep(torch::optim::Optimizer& optimizer, LossFunction function, TrainStepOptions options)
      : function_(std::move(function)), static_argnums_(options.aot.static_argnums), core_(optimizer, std::move(options)) {}

  /// Runs zero_grad(), the function, backward(), clipping, and the optimizer's step(). Returns what the function returned, detached.
  template <class... Args>
  auto operator()(const Args&... args) {
    return call_with({}, args...);
  }

  /// The same, where the loss also depends on `facts`.
  template <class... Args>
  auto call_with(std::string facts, const Args&... args) {
    return call_without_literals(std::move(facts), detail::without_literal(args)...);
  }

  /// The norm of all gradients before the last step clipped them. 0 if no ClipGradNorm was given. Waits for the device.
  double grad_norm() const { return core_.grad_norm(); }
  TrainStepStats stats() const { return core_.stats(); }
  /// Drops all compiled programs.
  void reset() { core_.reset(); }

 private:
  template <class... Args>
  auto call_without_literals(std::string facts, const Args&... args) {
    using Result = detail::ResultOf<LossFunction, Args...>;
    detail::FlatArguments flat = detail::flatten(std::move(facts), static_argnums_, args...);
    const auto run = [&](const std::vector<at::Tensor>& tensors) {
      return detail::run_on<Result>(function_, tensors, std::tuple<Args...>(args...));
    };
    return detail::result_of<Result>(core_.call({std::move(flat.tensors), std::move(flat.facts), std::move(flat.is_static), run}));
  }

  LossFunction function_;
  std::vector<std::size_t> static_argnums_;
  detail::StepCore core_;
};

/// Returns a training step of `optimizer`, which must outlive it and must not move. State, parameter groups, learning rates and schedulers
/// stay the optimizer's.
///
/// `function` takes tensors and the types that <hindcast/tree.h> supports. It returns the loss, a tensor with one element, or a pair,
/// tuple or vector that begins with it. It is compiled as by aot_function(), together with the gradients of all parameters: the first call
/// runs it, later ones run one program, which builds no autograd graph and writes no `.grad()`. So what it reads besides its arguments is
/// invisible: pass the module as an argument (below), and other state as numbers.
///
/// A step runs as separate zero_grad(), backward() and step() if a parameter has a hook, under DistributedDataParallel, with LBFGS, if an
/// argument has a history or is a parameter, and if the function calls backward() itself. stats() says why. In a program, only the
/// optimizer's parameters get gradients; arguments and other leaves get none.
///
/// Throws, as LibTorch does, if the loss fails, is not a scalar or requires no gradient; nothing is changed then.
template <class LossFunction, class = std::enable_if_t<!IsModule<LossFunction>::value>>
TrainStep<LossFunction> train_step(torch::optim::Optimizer& optimizer, LossFunction function, TrainStepOptions options = {}) {
  return {optimizer, std::move(function), std::move(options)};
}

/// TrainStep of `function(*module, arguments...)`. Sees of the module what aot_module() sees: submodules, their classes, whether each is in
/// training mode, parameters and buffers.
template <class Module, class LossFunction>
class ModuleTrainStep {
 public:
  ModuleTrainStep(torch::optim::Optimizer& optimizer, std::shared_ptr<Module> module, LossFunction function, TrainStepOptions options)
      : module_(std::move(module)), step_(optimizer, Loss{module_, std::move(function)}, named(module_, std::move(options))) {}

  template <class... Args>
  auto operator()(const Args&... args) {
    return step_.call_with(detail::facts_of(*module_), args...);
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
      static_assert(std::is_invocable_v<LossFunction&, Module&, Args&...>,
                    "hindcast: the loss function is called with the module itself, such as torch::nn::LinearImpl&, and the arguments");
      return function(*module, args...);
    }
  };

  static TrainStepOptions named(const std::shared_ptr<Module>& module, TrainStepOptions options) {
    if (!options.aot.tensor_names) {
      options.aot.tensor_names = [module](const std::vector<at::Tensor>& tensors) { return detail::names_in(*module, tensors); };
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
