#include "tests/whole/ops/op_run.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <unordered_set>

#include "tests/whole/ops/arguments.h"

namespace hindcast::tests::ops {
namespace {

using torch::autograd::Node;

void add_differentiable(const at::Tensor& t, std::vector<at::Tensor>& outputs) {
  const bool differentiable = t.defined() && t.requires_grad() && (t.is_floating_point() || t.is_complex());
  if (!differentiable) return;
  if (t.is_nested())
    outputs.push_back(t.contiguous().to_padded_tensor(0));
  else
    outputs.push_back(t.layout() == at::kStrided ? t : t.to_dense());
}

std::vector<at::Tensor> differentiable(const std::vector<c10::IValue>& results) {
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) add_differentiable(result.toTensor(), outputs);
    if (!result.isTensorList()) continue;
    for (const at::Tensor& t : result.toTensorVector()) add_differentiable(t, outputs);
  }
  return outputs;
}

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& outputs, Outputs which) {
  if (which == Outputs::First) return {outputs.front()};
  if (which == Outputs::Last) return {outputs.back()};
  return outputs;
}

at::Tensor weighted_sum(const std::vector<at::Tensor>& outputs, uint64_t seed) {
  at::Tensor loss;
  for (const at::Tensor& output : outputs) {
    at::Tensor sum = (output * root_gradient(output, Root::Contiguous, seed)).sum();
    if (sum.is_complex()) sum = at::real(sum);
    loss = loss.defined() ? loss + sum : sum;
  }
  return loss;
}

/// Hooks that replace gradients and record what they see, so that their order and arguments are compared too.
void attach_hooks(const Setting& setting, std::vector<at::Tensor>& leaves, at::Tensor& output, std::vector<at::Tensor>& seen) {
  if (setting.hooks == Hooks::RetainGrad) output.retain_grad();
  if (setting.hooks != Hooks::OnLeafAndOutput) return;
  output.register_hook([&seen](const at::Tensor& grad) {
    seen.push_back(grad.clone());
    return grad * 2;
  });
  for (at::Tensor& leaf : leaves) {
    if (!leaf.requires_grad()) continue;
    leaf.register_hook([&seen](const at::Tensor& grad) { seen.push_back(grad.clone()); });
    return;
  }
}

void run_backward(const Setting& setting, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& leaves,
                  std::vector<at::Tensor>& results) {
  std::vector<at::Tensor> roots = outputs;
  std::vector<at::Tensor> gradients;
  if (setting.root == Root::Loss) {
    roots = {weighted_sum(outputs, setting.seed)};
    results.push_back(roots.front().detach());
    gradients = {at::Tensor()};
  } else {
    for (const at::Tensor& output : outputs) gradients.push_back(root_gradient(output, setting.root, setting.seed));
  }
  if (setting.only_wanted) {
    for (const at::Tensor& grad : torch::autograd::grad(roots, {leaves.at(*setting.only_wanted)}, gradients, std::nullopt, false, true))
      results.push_back(grad);
  } else {
    torch::autograd::backward(roots, gradients);
  }
}

void give_grads(std::vector<at::Tensor>& leaves, uint64_t seed) {
  for (at::Tensor& leaf : leaves)
    if (leaf.layout() == at::kStrided && leaf.requires_grad()) leaf.mutable_grad() = root_gradient(leaf, Root::Contiguous, seed + 1);
}

std::vector<std::string> names_behind(const std::vector<at::Tensor>& outputs) {
  std::vector<std::string> names;
  std::unordered_set<Node*> found;
  std::vector<Node*> open;
  for (const at::Tensor& output : outputs) open.push_back(output.grad_fn().get());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !found.insert(node).second) continue;
    names.push_back(node->name());
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return names;
}

}  // namespace

std::vector<at::Tensor> run_row(const Row& row, const Setting& setting, const OpCaller& caller) {
  TensorMaker maker(setting);
  std::vector<at::Tensor> outputs = differentiable(call_op(row.op, row.arguments, maker, caller));
  if (outputs.empty()) return {};
  outputs = chosen(outputs, setting.outputs);

  std::vector<at::Tensor> results;
  for (const at::Tensor& output : outputs) results.push_back(output.detach().clone());
  std::vector<at::Tensor> seen;
  if (setting.grads_before) give_grads(maker.leaves(), setting.seed);
  attach_hooks(setting, maker.leaves(), outputs.front(), seen);
  run_backward(setting, outputs, maker.leaves(), results);
  if (setting.hooks == Hooks::RetainGrad) results.push_back(outputs.front().grad());
  results.insert(results.end(), seen.begin(), seen.end());
  for (const at::Tensor& leaf : maker.leaves()) results.push_back(leaf.grad());
  return results;
}

RowShape shape_of(const Row& row, const Setting& setting) {
  at::manual_seed(setting.seed);
  TensorMaker maker(setting);
  const std::vector<at::Tensor> outputs = differentiable(call_op(row.op, row.arguments, maker));
  return {names_behind(outputs), maker.leaves().size(), outputs.size()};
}

}  // namespace hindcast::tests::ops
