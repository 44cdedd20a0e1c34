#pragma once
// Nodes of gradients that have a history, as with create_graph.

#include <ATen/core/Tensor.h>

#include <vector>

namespace hindcast::engine {

/// If a program made several of these gradients, they share an autograd node, and the hooks of each are hooks of that node: a backward of
/// one gradient would call the hooks of all others, with undefined gradients. So each gets an alias node of its own. `given`: the program's
/// inputs. A gradient that is one of them, as of a sum, keeps its history.
void give_each_its_own_node(std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& given);

}  // namespace hindcast::engine
