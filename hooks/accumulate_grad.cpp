#include "hooks/accumulate_grad.h"

namespace hindcast::hooks {

void accumulate_grad(torch::autograd::AccumulateGrad& node, std::mutex& mutex, at::Tensor&& gradient, bool has_post_hooks) {
  const at::Tensor& variable = node.variable;
  if (gradient.defined()) {
    if (variable.grad_fn()) throw std::logic_error("leaf variable has been moved into the graph interior");
    if (!variable.requires_grad()) return;
  }
  const at::Tensor new_grad = std::move(gradient);
  const std::lock_guard lock(mutex);
  if (new_grad.defined()) {
    at::Tensor& grad = variable.mutable_grad();
    torch::autograd::AccumulateGrad::accumulateGrad(variable, grad, new_grad, 1 + size_t{has_post_hooks},
                                                    [&grad](at::Tensor&& updated) { grad = std::move(updated); });
  }
  // Also when nothing flowed in: LibTorch 2.11 calls it all the same.
  if (auto& hook = node.tensor_post_acc_grad_hooks(); hook != nullptr) (*hook)(variable);
}

}  // namespace hindcast::hooks
