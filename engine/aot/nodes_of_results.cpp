#include "engine/aot/nodes_of_results.h"

#include "capture/backward/program_node.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace hindcast::engine {
namespace {

bool is_of_a_program(const at::Tensor& gradient) {
  return gradient.defined() && gradient.requires_grad() && !gradient.is_leaf() &&
         dynamic_cast<const capture::ProgramNode*>(gradient.grad_fn().get()) != nullptr;
}

}  // namespace

void give_each_its_own_node(std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& given) {
  const auto is_made = [&](const at::Tensor& gradient) {
    return is_of_a_program(gradient) &&
           std::none_of(given.begin(), given.end(), [&](const at::Tensor& input) { return input.is_same(gradient); });
  };
  if (std::count_if(gradients.begin(), gradients.end(), is_made) < 2) return;
  const at::AutoGradMode grad(true);
  for (at::Tensor& gradient : gradients) {
    if (!is_made(gradient)) continue;
    // The view is dropped, so that writes to the gradient are not writes to a view.
    torch::autograd::impl::set_gradient_edge(gradient, torch::autograd::impl::gradient_edge(at::alias(gradient)));
  }
}

}  // namespace hindcast::engine
