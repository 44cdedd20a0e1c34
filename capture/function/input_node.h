#pragma once
// Where autograd's graph of a traced function begins.

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

/// Returns an edge to a new node, which receives the gradient of a tensor like `like` and whose own edge is `to`, if given.
torch::autograd::Edge input_edge(const at::Tensor& like, torch::autograd::Edge to = {});
/// Whether input_edge() made the node.
bool is_input_node(const torch::autograd::Node& node);

}  // namespace hindcast::capture
