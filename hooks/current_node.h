#pragma once
// The node whose user code runs, which the stock engine would be evaluating. LibTorch's own `get_current_node()` cannot be set from
// outside, and returns the node that carries our backward.

namespace torch::autograd {
struct Node;
}

namespace hindcast::hooks {

/// Set while a node's hooks or an opaque node run on this thread.
class CurrentNode {
 public:
  explicit CurrentNode(torch::autograd::Node& node);
  ~CurrentNode();
  CurrentNode(const CurrentNode&) = delete;
  CurrentNode& operator=(const CurrentNode&) = delete;

  /// nullptr outside user code. Inside, it is out of date while another engine's backward runs there.
  static torch::autograd::Node* of_thread();

 private:
  torch::autograd::Node* const outer_;
};

}  // namespace hindcast::hooks
