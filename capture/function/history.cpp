#include "capture/function/history.h"

#include "base/interpreter_error.h"
#include "capture/backward/field_sink.h"
#include "capture/backward/node_class.h"
#include "capture/backward/typed_collectors.h"
#include "capture/function/input_node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <string_view>
#include <typeinfo>
#include <unordered_set>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::Node;

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

bool is_users_function(const Node& node) {
  const std::string_view type = typeid(node).name();
  return type.starts_with("N5torch8autograd6PyNodeE") || type.starts_with("N5torch8autograd7CppNodeI");
}

bool is_custom_function(const Node& node) { return is_users_function(node) && !node.name().starts_with("GeneratedBackwardFor_"); }

bool has_custom_function_since(const at::Tensor& view, const at::Tensor& whole) {
  if (!view.requires_grad() || view.is_same(whole)) return false;
  const Edge end = torch::autograd::impl::gradient_edge(whole);
  for (Edge edge = torch::autograd::impl::gradient_edge(view); edge.is_valid() && edge != end; edge = edge.function->next_edge(0)) {
    if (is_custom_function(*edge.function)) return true;
    if (edge.function->num_outputs() == 0) return false;
  }
  return false;
}

namespace {

// A custom Function that is not declared traceable, or a node class from outside LibTorch.
bool has_a_formula_of_the_users(Node& node) {
  if (find_typed_collector(node) != nullptr || is_input_node(node)) return false;
  const std::string_view type = typeid(node).name();
  if (!is_custom_function(node)) return !type.starts_with("N5torch8autograd");
  if (!type.starts_with("N5torch8autograd6PyNodeE")) {
    Unloads unloads;
    return classify(node, unloads).kind == NodeKind::Opaque;
  }
  try {
    return !node.is_traceable();
  } catch (const std::exception&) {  // Python's AttributeError: not declared
    base::forget_interpreter_error();
    return true;
  }
}

}  // namespace

namespace {

/// Walks the history of tensors, up to input nodes, and replaces edges. The argument of run() may end the walk with a reason.
class Walk {
 public:
  explicit Walk(const ReplaceEdge& replace, std::unordered_set<Node*>* reached = nullptr)
      : replace_(replace), seen_(reached != nullptr ? *reached : own_) {}

  // Reads the last known history of a view. Asking autograd for it would rebuild it, under a lock that the caller may hold.
  void begin_at(const at::Tensor& tensor) {
    const auto* meta = tensor.defined() ? torch::autograd::impl::get_autograd_meta(tensor) : nullptr;
    if (meta != nullptr) visit(meta->grad_fn_.get());
  }
  void begin_at(const Edge& edge) { visit(edge.function.get()); }

  template <class Refuse>
  std::optional<std::string> run(Refuse refuse) {
    while (!waiting_.empty()) {
      Node& node = *waiting_.back();
      waiting_.pop_back();
      if (auto reason = refuse(node)) return reason;
      if (is_input_node(node)) continue;
      replace_all(node);
      // In a write to a view, the node of the write has the same edges, and LibTorch checks that.
      if (const auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node); copy != nullptr && copy->fn) replace_all(*copy->fn);
    }
    return std::nullopt;
  }

 private:
  void visit(Node* node) {
    if (node != nullptr && seen_.insert(node).second) waiting_.push_back(node);
  }
  void replace_all(Node& of) {
    for (Edge& edge : of.next_edges()) {
      if (!edge.is_valid()) continue;
      if (auto other = replace_(edge)) edge = std::move(*other);
      visit(edge.function.get());
    }
  }

  const ReplaceEdge& replace_;
  std::unordered_set<Node*> own_;
  std::unordered_set<Node*>& seen_;
  std::vector<Node*> waiting_;
};

}  // namespace

std::optional<std::string> replace_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace,
                                         std::unordered_set<Node*>* reached) {
  Walk walk(replace, reached);
  for (const at::Tensor& tensor : made) {
    if (tensor.defined() && tensor.requires_grad() && tensor.is_leaf()) return "it returns a leaf of its own that requires grad";
    if (tensor.defined() && tensor.requires_grad()) walk.begin_at(torch::autograd::impl::gradient_edge(tensor));
  }
  return walk.run([](Node& node) -> std::optional<std::string> {
    if (has_hooks(node)) return "it registers a hook, which would be called while it is traced and never again";
    if (const auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node);
        has_a_formula_of_the_users(node) || (copy != nullptr && copy->fn && has_a_formula_of_the_users(*copy->fn))) {
      return "it calls a custom Function, " + node.name() +
             ", whose backward may do what a program cannot. Declare it traceable (is_traceable = true) if it only calls PyTorch's "
             "functions on its tensors";
    }
    return std::nullopt;
  });
}

void redirect_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace) {
  Walk walk(replace);
  for (const at::Tensor& tensor : made) walk.begin_at(tensor);
  walk.run([](Node&) { return std::optional<std::string>(); });
}

namespace {

// The write's own node for a write to a view; otherwise the node itself.
Node* formula_of(Node& node) {
  const auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node);
  return copy != nullptr ? copy->fn.get() : &node;
}

/// Reads the fields of nodes, one after the other.
class Fields {
 public:
  /// Appends the tensors that the node has saved to `tensors`. `forgets_symbols`: see FieldSink. False: some are missing, since hooks hold
  /// them, they were released, or the node's class is unknown.
  bool read(Node& node, std::vector<at::Tensor>& tensors, bool forgets_symbols) {
    const TypedCollector* const typed = find_typed_collector(node);
    if (typed == nullptr) return false;
    key_.clear();
    facts_.clear();
    origins_.clear();
    FieldSink sink(key_, facts_, tensors);
    sink.begin_node(0, node);
    sink.origins = &origins_;
    sink.forgets_symbols = forgets_symbols;
    const std::lock_guard lock(node_mutex(node));
    try {
      typed->collect(node, sink);
    } catch (const CannotCollect&) {
      return false;
    }
    return sink.opaque_reason != FieldSink::kSavedWithHooks;
  }

 private:
  cache::KeyBytes key_;
  Facts facts_;
  std::vector<FactOrigin> origins_;
};

std::optional<Edge> leave_edge(const Edge&) { return std::nullopt; }

void forget(c10::SymInt& size) { size = size.guard_int(__FILE__, __LINE__); }

template <class List>
void forget_all(List& sizes) {
  for (c10::SymInt& size : sizes) forget(size);
}

void forget_in_inputs(Node& node) {
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    auto& metadata = node.mutable_input_metadata(i);
    if (!metadata.was_default_constructed() && !metadata.is_nested_tensor()) forget_all(metadata.mutable_shape_as_dim_vector());
  }
}

void forget_in_geometry(at::TensorGeometry& geometry) {
  forget_all(geometry.mutable_sizes());
  forget_all(geometry.mutable_strides());
  forget(geometry.mutable_storage_offset());
  geometry.recompute();
}

void forget_in_view(std::unique_ptr<torch::autograd::ViewFunc>& view) {
  if (view == nullptr || view->num_symints() == 0) return;
  std::vector<c10::SymInt> sizes = view->get_symints();
  forget_all(sizes);
  view = view->clone_and_set(std::move(sizes));
}

// After a write to its base, autograd takes a view again, by the view's own function.
void forget_in_view(const at::Tensor& tensor) {
  const auto* const meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (meta == nullptr || !meta->has_bw_view() || !meta->get_backward_view().has_view_fn()) return;
  forget_in_view(const_cast<torch::autograd::ViewInfo&>(meta->get_backward_view()).view_fn_);
}

}  // namespace

void forget_symbols(const std::vector<at::Tensor>& made) {
  Fields fields;
  std::vector<at::Tensor> tensors;
  const ReplaceEdge leave = leave_edge;
  Walk walk(leave);
  for (const at::Tensor& tensor : made) {
    if (tensor.defined()) forget_in_view(tensor);
    walk.begin_at(tensor);
  }
  walk.run([&](Node& node) -> std::optional<std::string> {
    forget_in_inputs(node);
    if (auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node); copy != nullptr) {
      forget_in_geometry(copy->base);
      forget_in_geometry(copy->view);
      forget_in_view(copy->view_fn);
    }
    tensors.clear();
    if (Node* const formula = formula_of(node)) fields.read(*formula, tensors, /*forgets_symbols=*/true);
    return std::nullopt;
  });
}

void take_views_by_geometry(const std::vector<at::Tensor>& made) {
  for (const at::Tensor& view : made) {
    const auto* const meta = torch::autograd::impl::get_view_autograd_meta(view);
    if (meta == nullptr || !meta->has_bw_view() || !meta->get_backward_view().has_view_fn()) continue;
    const at::Tensor& base = meta->get_backward_view().base_;
    const bool has_geometry = view.layout() == at::kStrided && base.layout() == at::kStrided && view.dtype() == base.dtype() &&
                              view.is_conj() == base.is_conj() && view.is_neg() == base.is_neg();
    if (has_geometry) const_cast<torch::autograd::ViewInfo&>(meta->get_backward_view()).view_fn_.reset();
  }
}

bool has_saved_tensor_hooks(Node& node) {
  Fields fields;
  std::vector<at::Tensor> saved;
  return !fields.read(node, saved, /*forgets_symbols=*/false);
}

namespace {

std::unordered_set<Node*> nodes_of(const BackwardRange& backward) {
  std::unordered_set<Node*> reached, run;
  const ReplaceEdge leave = leave_edge;
  Walk walk(leave, &reached);
  for (const at::Tensor& tensor : backward.from) {
    if (tensor.defined() && tensor.requires_grad()) walk.begin_at(torch::autograd::impl::gradient_edge(tensor));
  }
  walk.run([](Node&) { return std::optional<std::string>(); });
  std::vector<Node*> in_order(reached.begin(), reached.end());  // a node comes after those that it leads to
  std::sort(in_order.begin(), in_order.end(), [](const Node* a, const Node* b) { return a->topological_nr() < b->topological_nr(); });
  for (const Edge& end : backward.to) run.insert(end.function.get());
  for (Node* const node : in_order) {
    const auto leads_there = [&](const Edge& edge) { return run.contains(edge.function.get()); };
    if (std::any_of(node->next_edges().begin(), node->next_edges().end(), leads_there)) run.insert(node);
  }
  return run;
}

}  // namespace

bool has_user_code_outside(const BackwardRange& whole, const BackwardRange& part) {
  const std::unordered_set<Node*> in_part = nodes_of(part), in_whole = nodes_of(whole);
  return std::any_of(in_whole.begin(), in_whole.end(), [&](Node* node) {
    if (in_part.contains(node) || is_input_node(*node)) return false;
    const std::type_info& type = typeid(*node);
    if (type == typeid(torch::autograd::AccumulateGrad) || type == typeid(torch::autograd::CopyBackwards)) return false;
    Node* const formula = formula_of(*node);
    return formula == nullptr || has_saved_tensor_hooks(*formula);
  });
}

std::optional<References> references_of(const std::vector<at::Tensor>& made, const std::vector<Edge>& also) {
  Fields fields;
  std::vector<at::Tensor> tensors;
  const ReplaceEdge leave = leave_edge;
  Walk walk(leave);
  for (const Edge& edge : also) walk.begin_at(edge);
  for (const at::Tensor& tensor : made) {
    walk.begin_at(tensor);
    if (!tensor.is_view()) continue;
    const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
    if (meta->has_bw_view()) tensors.push_back(meta->get_backward_view().base_);
    if (meta->has_fw_view() && !meta->shared_view_info()) tensors.push_back(meta->get_forward_view().base_);
  }
  const auto unknown = walk.run([&](Node& node) -> std::optional<std::string> {
    if (is_input_node(node) || typeid(node) == typeid(torch::autograd::CopyBackwards)) return std::nullopt;
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)) {
      tensors.push_back(leaf->variable);
      return std::nullopt;
    }
    Node* const formula = formula_of(node);
    if (formula != nullptr && fields.read(*formula, tensors, /*forgets_symbols=*/false)) return std::nullopt;
    return node.name();
  });
  if (unknown) return std::nullopt;
  References references;
  for (const at::Tensor& tensor : tensors) ++references[tensor.unsafeGetTensorImpl()];
  return references;
}

}  // namespace hindcast::capture
