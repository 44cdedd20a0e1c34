#pragma once
// Calls a node's hooks through LibTorch's own interface, in the stock engine's order, whoever wrote them. The live lists
// are read at each call: a hook may register or remove hooks.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace hindcast::hooks {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Tensor pre-hooks, then those of retain_grad(). Returns the gradients that flow on.
variable_list run_tensor_pre_hooks(Node& node, variable_list gradients);
variable_list run_pre_hooks(Node& node, variable_list gradients);
/// `inputs` are the gradients that the node was given. A hook registered while the node ran gets an empty list, as in the
/// stock engine (`had_hooks` is false then).
variable_list run_post_hooks(Node& node, variable_list outputs, const variable_list& inputs, bool had_hooks);

}  // namespace hindcast::hooks
