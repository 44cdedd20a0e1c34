#pragma once
// Where autograd's graph of a traced function begins.

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

namespace hindcast::capture {

/// Leads to a new node at which the gradient of a tensor like this arrives, and that leads there, or nowhere.
torch::autograd::Edge input_edge(const at::Tensor& like, torch::autograd::Edge to = {});
/// A node that input_edge() has made.
bool is_input_node(const torch::autograd::Node& node);

}  // namespace hindcast::capture
