#pragma once
// The optimizers of torch::optim in all their forms, and copies of parameters that step side by side.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace hindcast::tests {

using Tensors = std::vector<at::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors& parameters)>;

struct OptimizerForm {
  std::string name;
  MakeOptimizer make;
};
inline void PrintTo(const OptimizerForm& form, std::ostream* to) { *to << form.name; }
const std::vector<OptimizerForm>& optimizer_forms();

/// Leaves that require a gradient, which they do not have.
Tensors copies_of(const Tensors& parameters, std::optional<at::ScalarType> type = std::nullopt);
/// Each gets a copy of its gradient. An undefined one: none.
void set_gradients(const Tensors& parameters, const Tensors& gradients);

/// What the optimizer keeps of a parameter, in the order of its state's members. Empty: it keeps nothing.
Tensors state_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// -1: it counts none, or has no state.
int64_t steps_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

}  // namespace hindcast::tests
