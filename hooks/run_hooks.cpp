#include "hooks/run_hooks.h"

#include "hooks/current_node.h"

namespace hindcast::hooks {

// By index: a hook that registers another on its own node would invalidate an iterator.
variable_list run_tensor_pre_hooks(Node& node, variable_list gradients) {
  const CurrentNode current(node);
  for (size_t i = 0; i < node.tensor_pre_hooks().size(); ++i) gradients = (*node.tensor_pre_hooks()[i])(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
  return gradients;
}

variable_list run_pre_hooks(Node& node, variable_list gradients) {
  const CurrentNode current(node);
  for (size_t i = 0; i < node.pre_hooks().size(); ++i) gradients = (*node.pre_hooks()[i])(gradients);
  return gradients;
}

variable_list run_post_hooks(Node& node, variable_list outputs, const variable_list& inputs, bool had_hooks) {
  const CurrentNode current(node);
  const variable_list none;
  for (size_t i = 0; i < node.post_hooks().size(); ++i) outputs = (*node.post_hooks()[i])(outputs, had_hooks ? inputs : none);
  return outputs;
}

}  // namespace hindcast::hooks
