#pragma once
// Where autograd's graph of a traced function begins.

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hindcast::capture {

/// Leads to a new node at which the gradient of a tensor like this arrives, and that leads there, or nowhere.
torch::autograd::Edge input_edge(const at::Tensor& like, torch::autograd::Edge to = {});

/// For each edge of what made these tensors: nullopt leaves it, and the walk follows it; another edge takes its place.
using ReplaceEdge = std::function<std::optional<torch::autograd::Edge>(const torch::autograd::Edge&)>;

/// Why these tensors' history cannot be run ahead of time; nullopt: it can. `reached`: the nodes of that history, up to input nodes.
std::optional<std::string> replace_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace,
                                         std::unordered_set<torch::autograd::Node*>* reached = nullptr);
/// Replaces edges, whatever the history is.
void redirect_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace);
/// Sizes in the history of `made` that are symbols become the numbers that they are: nobody answers for the symbols any more.
void forget_symbols(const std::vector<at::Tensor>& made);
/// By tensor, how many references autograd's history of `made` and the nodes of `also` hold: what nodes saved, and what views are of.
/// Nullopt: there is a node that nobody can look into.
std::optional<std::unordered_map<const c10::TensorImpl*, size_t>> saved_in_history(const std::vector<at::Tensor>& made,
                                                                                   const std::vector<torch::autograd::Edge>& also);
/// A node of a torch::autograd::Function, of C++ or Python: the user's code.
bool is_users_function(const torch::autograd::Node& node);
/// The same, but for those that torch.library makes for an operator.
bool is_custom_function(const torch::autograd::Node& node);
/// Whether somebody has registered a hook there.
bool has_hooks(torch::autograd::Node& node);

}  // namespace hindcast::capture
