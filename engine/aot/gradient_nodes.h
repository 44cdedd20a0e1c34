#pragma once
// The autograd nodes of gradients that a program made with a history, as for create_graph.

#include <ATen/core/Tensor.h>

#include <vector>

namespace hindcast::engine {

/// Gradients of one program share an autograd node, and the hooks of each are hooks of that node: a backward of one gradient would call the
/// hooks of all, with undefined gradients. So each of several gets an alias node of its own. `given`: the program's inputs. A gradient that
/// is one of them, such as the incoming gradient of a sum, keeps its history.
void give_each_its_own_node(std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& given);

}  // namespace hindcast::engine
