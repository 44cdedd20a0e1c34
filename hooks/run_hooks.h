#pragma once
// Calls a node's hooks through LibTorch's own interface, in the stock engine's order. The live lists are read at each call, since a hook
// may register or remove hooks.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace hindcast::hooks {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Runs tensor pre-hooks, then those of retain_grad(). Returns the gradients after the hooks.
variable_list run_tensor_pre_hooks(Node& node, variable_list gradients);
variable_list run_pre_hooks(Node& node, variable_list gradients);
/// `inputs` are the gradients that the node received. A hook that was registered while the node ran gets an empty list, as in the stock
/// engine (`had_hooks` is false then).
variable_list run_post_hooks(Node& node, variable_list outputs, const variable_list& inputs, bool had_hooks);

}  // namespace hindcast::hooks
