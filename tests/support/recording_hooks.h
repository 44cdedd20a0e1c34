#pragma once
// Hook classes of LibTorch's C++ interface, created from lambdas. These are plain subclasses, as a user's own would be: LibTorch's own
// compiled autograd cannot collect them.

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <utility>

namespace hindcast::tests {

using torch::autograd::variable_list;

struct LambdaPreHook : torch::autograd::FunctionPreHook {
  using Fn = std::function<variable_list(const variable_list&)>;
  explicit LambdaPreHook(Fn fn) : fn(std::move(fn)) {}
  variable_list operator()(const variable_list& grads) override { return fn(grads); }
  Fn fn;
};

struct LambdaNodePostHook : torch::autograd::FunctionPostHook {
  using Fn = std::function<variable_list(const variable_list&, const variable_list&)>;
  explicit LambdaNodePostHook(Fn fn) : fn(std::move(fn)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override { return fn(outputs, inputs); }
  Fn fn;
};

struct LambdaGradReadyHook : torch::autograd::PostAccumulateGradHook {
  using Fn = std::function<void(const at::Tensor&)>;
  explicit LambdaGradReadyHook(Fn fn) : fn(std::move(fn)) {}
  void operator()(const at::Tensor& tensor) override { fn(tensor); }
  Fn fn;
};

inline std::unique_ptr<LambdaPreHook> pre_hook(LambdaPreHook::Fn fn) { return std::make_unique<LambdaPreHook>(std::move(fn)); }

inline std::unique_ptr<LambdaNodePostHook> post_hook(LambdaNodePostHook::Fn fn) {
  return std::make_unique<LambdaNodePostHook>(std::move(fn));
}

}  // namespace hindcast::tests
