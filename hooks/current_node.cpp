#include "hooks/current_node.h"

namespace hindcast::hooks {
namespace {

thread_local torch::autograd::Node* current = nullptr;

}  // namespace

CurrentNode::CurrentNode(torch::autograd::Node& node) : outer_(current) { current = &node; }
CurrentNode::~CurrentNode() { current = outer_; }

torch::autograd::Node* CurrentNode::of_thread() { return current; }

}  // namespace hindcast::hooks
