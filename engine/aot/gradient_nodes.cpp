#include "engine/aot/gradient_nodes.h"

#include "capture/backward/program_node.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace hindcast::engine {
namespace {

bool is_made_by_a_program(const at::Tensor& gradient, const std::vector<at::Tensor>& given) {
  return gradient.defined() && gradient.requires_grad() && !gradient.is_leaf() &&
         dynamic_cast<const capture::ProgramNode*>(gradient.grad_fn().get()) != nullptr &&
         std::none_of(given.begin(), given.end(), [&](const at::Tensor& input) { return input.is_same(gradient); });
}

}  // namespace

void give_each_its_own_node(std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& given) {
  if (gradients.size() < 2) return;
  std::vector<at::Tensor*> made;
  for (at::Tensor& gradient : gradients) {
    if (is_made_by_a_program(gradient, given)) made.push_back(&gradient);
  }
  if (made.size() < 2) return;
  const at::AutoGradMode grad(true);
  for (at::Tensor* const gradient : made) {
    // The view is dropped, so that writes to the gradient are not writes to a view.
    torch::autograd::impl::set_gradient_edge(*gradient, torch::autograd::impl::gradient_edge(at::alias(*gradient)));
  }
}

}  // namespace hindcast::engine
