#pragma once
// Whose user code runs: the node that the stock engine would be evaluating. LibTorch's own `get_current_node()` cannot be told from
// outside, and names the node that carries our backward.

namespace torch::autograd {
struct Node;
}

namespace hindcast::hooks {

/// For the hooks of a node, and for a node that is called as itself, on this thread.
class CurrentNode {
 public:
  explicit CurrentNode(torch::autograd::Node& node);
  ~CurrentNode();
  CurrentNode(const CurrentNode&) = delete;
  CurrentNode& operator=(const CurrentNode&) = delete;

  /// Null outside of user code. Inside, it is out of date while another engine's backward runs there.
  static torch::autograd::Node* of_thread();

 private:
  torch::autograd::Node* const outer_;
};

}  // namespace hindcast::hooks
