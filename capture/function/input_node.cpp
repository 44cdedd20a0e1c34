#include "capture/function/input_node.h"

#include <utility>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

struct InputNode final : Node {
  InputNode(const at::Tensor& like, torch::autograd::edge_list to) : Node(std::move(to)) { add_input_metadata(like); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return num_outputs() == 0 ? torch::autograd::variable_list() : std::move(gradients);
  }
  std::string name() const override { return "hindcast::Input"; }
};

}  // namespace

Edge input_edge(const at::Tensor& like, Edge to) {
  torch::autograd::edge_list edges;
  if (to.is_valid()) edges.push_back(std::move(to));
  return {own_node(new InputNode(like, std::move(edges))), 0};
}

bool is_input_node(const Node& node) { return dynamic_cast<const InputNode*>(&node) != nullptr; }

}  // namespace hindcast::capture
