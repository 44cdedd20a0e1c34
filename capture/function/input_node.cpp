#include "capture/function/input_node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace hindcast::capture {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

struct InputNode final : Node {
  explicit InputNode(const at::Tensor& like) : Node(torch::autograd::edge_list()) { add_input_metadata(like); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
  std::string name() const override { return "hindcast::Input"; }
};

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

}  // namespace

Edge input_edge(const at::Tensor& like) { return {own_node(new InputNode(like)), 0}; }

std::optional<std::string> replace_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace) {
  std::unordered_set<Node*> seen;
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
    for (Edge& edge : node.next_edges()) {
      if (!edge.is_valid()) continue;
      if (auto other = replace(edge)) edge = std::move(*other);
      visit(edge.function.get());
    }
  }
  return std::nullopt;
}

}  // namespace hindcast::capture
