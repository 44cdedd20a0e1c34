#pragma once
// Autograd's history of what a traced function made: the nodes behind its tensors, up to those where it begins (input_node.h).

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hindcast::capture {

/// Called for each edge: nullopt keeps it, and the walk follows it; otherwise the returned edge replaces it.
using ReplaceEdge = std::function<std::optional<torch::autograd::Edge>(const torch::autograd::Edge&)>;

/// Replaces edges in the history of `made`. Returns why this history cannot be run ahead of time; nullopt if it can. `reached`: its nodes.
std::optional<std::string> replace_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace,
                                         std::unordered_set<torch::autograd::Node*>* reached = nullptr);
/// Replaces edges, whatever the history is. Takes no autograd lock: the op that is running may hold one.
void redirect_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace);

/// Replaces symbolic sizes in the history by plain numbers, for LibTorch's kernels, which take no symbols.
void forget_symbols(const std::vector<at::Tensor>& made);

/// From now on autograd takes these views again by their geometry, as it does where views are not replayed. A replayed as_strided() counts
/// from the start of the storage, so it is wrong for a base that begins elsewhere than the one it was recorded for.
void take_views_by_geometry(const std::vector<at::Tensor>& made);

/// Number of references to each tensor.
using References = std::unordered_map<const c10::TensorImpl*, size_t>;
/// References that the history of `made` and the nodes of `also` hold: saved tensors, leaves, bases of views. nullopt: a node's class is
/// unknown, or hooks hold what it has saved.
std::optional<References> references_of(const std::vector<at::Tensor>& made, const std::vector<torch::autograd::Edge>& also);

/// Whether saved-tensor hooks hold what a node has saved. Also true if that was released or written to, or if the node is no class of
/// LibTorch's.
bool has_saved_tensor_hooks(torch::autograd::Node& node);
/// A node of a torch::autograd::Function, in C++ or Python: its backward is user code.
bool is_users_function(const torch::autograd::Node& node);
/// The same, except those that torch.library makes for an operator.
bool is_custom_function(const torch::autograd::Node& node);
bool has_hooks(torch::autograd::Node& node);
/// The nodes of a backward that starts at some tensors and ends at some edges.
struct BackwardRange {
  std::vector<at::Tensor> from;
  std::vector<torch::autograd::Edge> to;
};
/// Whether a node of `whole` that is not in `part` runs user code: a custom Function, or saved-tensor hooks.
bool has_user_code_outside(const BackwardRange& whole, const BackwardRange& part);
/// Whether a custom Function lies in the history of `view` behind that of `whole`, the tensor that it is a view of. Taking the view again
/// would lose the Function's backward.
bool has_custom_function_since(const at::Tensor& view, const at::Tensor& whole);

}  // namespace hindcast::capture
