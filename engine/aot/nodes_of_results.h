#pragma once
// Nodes of gradients that have a history, as with create_graph.

#include <ATen/core/Tensor.h>

#include <vector>

namespace hindcast::engine {

/// If a program made several of these gradients, they have one autograd node together, and the hooks of each are hooks of that node: a
/// backward of one gradient would call the hooks of all others, with undefined gradients. So each gets an identity as a node of its own.
void give_each_its_own_node(std::vector<at::Tensor>& gradients);

}  // namespace hindcast::engine
