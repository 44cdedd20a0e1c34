#pragma once
// Where autograd's graph of a traced function begins.

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace hindcast::capture {

/// Leads to a new node at which the gradient of a tensor like this arrives, and that leads nowhere; or there.
torch::autograd::Edge input_edge(const at::Tensor& like, torch::autograd::Edge to = {});

/// For each edge of what made these tensors: nullopt leaves it, and the walk follows it; another edge takes its place.
using ReplaceEdge = std::function<std::optional<torch::autograd::Edge>(const torch::autograd::Edge&)>;

/// Why these tensors' history cannot be run ahead of time; nullopt: it can. `reached`: the nodes of that history.
std::optional<std::string> replace_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace,
                                         std::unordered_set<torch::autograd::Node*>* reached = nullptr);
/// Whether somebody has registered a hook there.
bool has_hooks(torch::autograd::Node& node);

}  // namespace hindcast::capture
