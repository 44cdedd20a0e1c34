// A library that is loaded, unloaded and loaded again in another version, which FACTOR selects.

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "hindcast/traceable.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Times : torch::autograd::Function<Times> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * FACTOR; }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return {gradients[0] * FACTOR}; }
};

struct TimesInAHook {
  at::Tensor operator()(const at::Tensor& gradient) const { return gradient * FACTOR; }
};

}  // namespace

extern "C" void plugin_times(const at::Tensor* x, at::Tensor* y) { *y = Times::apply(*x); }

extern "C" void plugin_hook(const at::Tensor* y) { y->register_hook(hindcast::traceable(TimesInAHook{})); }
