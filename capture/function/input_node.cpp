#include "capture/function/input_node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace hindcast::capture {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

struct InputNode final : Node {
  InputNode(const at::Tensor& like, torch::autograd::edge_list to) : Node(std::move(to)) { add_input_metadata(like); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return num_outputs() == 0 ? torch::autograd::variable_list() : std::move(gradients);
  }
  std::string name() const override { return "hindcast::Input"; }
};

}  // namespace

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

Edge input_edge(const at::Tensor& like, Edge to) {
  torch::autograd::edge_list edges;
  if (to.is_valid()) edges.push_back(std::move(to));
  return {own_node(new InputNode(like, std::move(edges))), 0};
}

std::optional<std::string> replace_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace,
                                         std::unordered_set<Node*>* reached) {
  std::unordered_set<Node*> own;
  std::unordered_set<Node*>& seen = reached != nullptr ? *reached : own;
  std::vector<Node*> waiting;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) waiting.push_back(node);
  };
  for (const at::Tensor& tensor : made) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    if (tensor.is_leaf()) return "it returns a leaf of its own that requires grad";
    visit(torch::autograd::impl::gradient_edge(tensor).function.get());
  }
  while (!waiting.empty()) {
    Node& node = *waiting.back();
    waiting.pop_back();
    if (has_hooks(node)) return "it registers a hook, which would be called while it is traced and never again";
    // torch.utils.checkpoint's own: it runs a backward inside, which asks whether all gradients are wanted.
    if (node.name() == "CheckpointFunctionBackward") return "it makes a checkpoint with use_reentrant=True";
    const auto replace_all = [&](Node& of) {
      for (Edge& edge : of.next_edges()) {
        if (!edge.is_valid()) continue;
        if (auto other = replace(edge)) edge = std::move(*other);
        visit(edge.function.get());
      }
    };
    replace_all(node);
    // A write to a view: the node of the write has the same edges, and LibTorch checks it.
    if (const auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node); copy != nullptr && copy->fn) replace_all(*copy->fn);
  }
  return std::nullopt;
}

}  // namespace hindcast::capture
