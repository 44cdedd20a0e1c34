#include "hooks/accumulate_grad.h"

#include "hooks/current_node.h"

#include <typeinfo>

namespace hindcast::hooks {
namespace {

bool is_ordinary(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return typeid(impl) == typeid(c10::TensorImpl) && tensor.layout() == at::kStrided && !impl.is_python_dispatch() && !tensor.is_inference();
}

// LibTorch's template would store such a gradient itself, `detach()`ed from whoever else holds it. Nothing else does: a Python object would
// hold a reference too.
bool becomes_grad(const at::Tensor& gradient, const at::Tensor& variable) {
  return gradient.use_count() == 1 && gradient.unsafeGetTensorImpl()->autograd_meta() == nullptr && is_ordinary(gradient) &&
         variable.layout() == at::kStrided && !c10::GradMode::is_enabled() &&
         torch::autograd::utils::obeys_layout_contract(gradient, variable);
}

void accumulate(const at::Tensor& variable, at::Tensor gradient, bool has_post_hooks) {
  at::Tensor& grad = variable.mutable_grad();
  if (!grad.defined() && becomes_grad(gradient, variable)) {
    grad = std::move(gradient);  // detaching would later give the same tensor
    return;
  }
  torch::autograd::AccumulateGrad::accumulateGrad(variable, grad, gradient, 1 + size_t{has_post_hooks},
                                                  [&grad](at::Tensor&& updated) { grad = std::move(updated); });
}

}  // namespace

void accumulate_grad(torch::autograd::AccumulateGrad& node, std::mutex& mutex, at::Tensor&& gradient, bool has_post_hooks) {
  const at::Tensor& variable = node.variable;
  if (gradient.defined()) {
    if (variable.grad_fn()) throw std::logic_error("leaf variable has been moved into the graph interior");
    if (!variable.requires_grad()) return;
  }
  const std::lock_guard lock(mutex);
  if (gradient.defined()) accumulate(variable, std::move(gradient), has_post_hooks);
  // Called even if no gradient flowed in, as in LibTorch 2.11.
  if (auto& hook = node.tensor_post_acc_grad_hooks(); hook != nullptr) {
    const CurrentNode current(node);
    (*hook)(variable);
  }
}

}  // namespace hindcast::hooks
