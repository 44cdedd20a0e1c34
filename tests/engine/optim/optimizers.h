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

/// Leaves that require grad and have no gradient.
Tensors copies_of(const Tensors& parameters, std::optional<at::ScalarType> type = std::nullopt);
/// Each gets a copy of its gradient; none if that is undefined.
void set_gradients(const Tensors& parameters, const Tensors& gradients);

/// The optimizer's state of a parameter, in the order of the state's members. Empty: no state.
Tensors state_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// -1: no step count, or no state.
int64_t steps_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

}  // namespace hindcast::tests
