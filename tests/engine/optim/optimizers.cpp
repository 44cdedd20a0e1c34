#include "tests/engine/optim/optimizers.h"

namespace hindcast::tests {
namespace {

using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

template <class Class, class Options>
MakeOptimizer with(Options options) {
  return [options](const Tensors& parameters) { return std::make_unique<Class>(parameters, options); };
}

template <class State>
const State* state_as(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : dynamic_cast<const State*>(found->second.get());
}

template <class State>
Tensors moments_of(const State& state) {
  return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}

}  // namespace

const std::vector<OptimizerForm>& optimizer_forms() {
  static const std::vector<OptimizerForm> forms = {
      {"sgd", with<SGD>(SGDOptions(0.1))},
      {"sgd_decay", with<SGD>(SGDOptions(0.1).weight_decay(0.1))},
      {"sgd_momentum", with<SGD>(SGDOptions(0.1).momentum(0.9))},
      {"sgd_dampened", with<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5).weight_decay(0.1))},
      {"sgd_nesterov", with<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.1))},
      {"adam", with<Adam>(AdamOptions(0.01))},
      {"adam_decay", with<Adam>(AdamOptions(0.01).weight_decay(0.1).betas({0.8, 0.95}))},
      {"adam_amsgrad", with<Adam>(AdamOptions(0.01).amsgrad(true).eps(1e-6))},
      {"adamw", with<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"adamw_plain", with<AdamW>(AdamWOptions(0.01).weight_decay(0))},
      {"adamw_amsgrad", with<AdamW>(AdamWOptions(0.01).amsgrad(true))},
      {"rmsprop", with<RMSprop>(RMSpropOptions(0.01))},
      // A gradient that weight decay nearly cancels has few correct digits. Its quotient by its own size is of order 1; eps bounds that.
      {"rmsprop_momentum", with<RMSprop>(RMSpropOptions(0.01).momentum(0.9).eps(1e-2).weight_decay(0.1))},
      {"rmsprop_centered", with<RMSprop>(RMSpropOptions(0.01).centered(true).eps(1e-3))},
      {"rmsprop_all", with<RMSprop>(RMSpropOptions(0.01).centered(true).momentum(0.9).eps(1e-3).weight_decay(0.1))},
      {"adagrad", with<Adagrad>(AdagradOptions(0.1))},
      {"adagrad_decay", with<Adagrad>(AdagradOptions(0.1).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(0.5))},
  };
  return forms;
}

Tensors copies_of(const Tensors& parameters, std::optional<at::ScalarType> type) {
  Tensors copies;
  for (const at::Tensor& parameter : parameters)
    copies.push_back(parameter.detach().to(type.value_or(parameter.scalar_type()), false, /*copy=*/true).requires_grad_());
  return copies;
}

void set_gradients(const Tensors& parameters, const Tensors& gradients) {
  for (size_t i = 0; i < parameters.size(); ++i)
    parameters[i].mutable_grad() =
        gradients[i].defined() ? gradients[i].to(parameters[i].scalar_type(), false, /*copy=*/true) : at::Tensor();
}

Tensors state_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  if (const auto* state = state_as<torch::optim::SGDParamState>(optimizer, parameter)) return {state->momentum_buffer()};
  if (const auto* state = state_as<torch::optim::AdamParamState>(optimizer, parameter)) return moments_of(*state);
  if (const auto* state = state_as<torch::optim::AdamWParamState>(optimizer, parameter)) return moments_of(*state);
  if (const auto* state = state_as<torch::optim::RMSpropParamState>(optimizer, parameter))
    return {state->square_avg(), state->momentum_buffer(), state->grad_avg()};
  if (const auto* state = state_as<torch::optim::AdagradParamState>(optimizer, parameter)) return {state->sum()};
  return {};
}

int64_t steps_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  if (const auto* state = state_as<torch::optim::AdamParamState>(optimizer, parameter)) return state->step();
  if (const auto* state = state_as<torch::optim::AdamWParamState>(optimizer, parameter)) return state->step();
  if (const auto* state = state_as<torch::optim::RMSpropParamState>(optimizer, parameter)) return state->step();
  if (const auto* state = state_as<torch::optim::AdagradParamState>(optimizer, parameter)) return state->step();
  return -1;
}

}  // namespace hindcast::tests
