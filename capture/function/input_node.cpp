#include "capture/function/input_node.h"

#include "capture/backward/field_sink.h"
#include "capture/backward/node_class.h"
#include "capture/backward/typed_collectors.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <string_view>
#include <typeinfo>
#include <unordered_set>

namespace hindcast::capture {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

struct InputNode final : Node {
  InputNode(const at::Tensor& like, torch::autograd::edge_list to) : Node(std::move(to)) { add_input_metadata(like); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return num_outputs() == 0 ? torch::autograd::variable_list() : std::move(gradients);
  }
  std::string name() const override { return "hindcast::Input"; }
};

}  // namespace

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

bool is_users_function(const Node& node) {
  const std::string_view type = typeid(node).name();
  return type.starts_with("N5torch8autograd6PyNodeE") || type.starts_with("N5torch8autograd7CppNodeI");
}

bool is_custom_function(const Node& node) { return is_users_function(node) && !node.name().starts_with("GeneratedBackwardFor_"); }

namespace {

// A custom Function that is not declared traceable, or another class of nodes that LibTorch does not have.
bool has_a_formula_of_the_users(Node& node) {
  if (find_typed_collector(node) != nullptr || dynamic_cast<const InputNode*>(&node) != nullptr) return false;
  const std::string_view type = typeid(node).name();
  if (!is_custom_function(node)) return !type.starts_with("N5torch8autograd");
  if (!type.starts_with("N5torch8autograd6PyNodeE")) {
    Unloads unloads;
    return classify(node, unloads).kind == NodeKind::Opaque;
  }
  try {
    return !node.is_traceable();
  } catch (const std::exception&) {  // Python's AttributeError: it does not say
    return true;
  }
}

}  // namespace

Edge input_edge(const at::Tensor& like, Edge to) {
  torch::autograd::edge_list edges;
  if (to.is_valid()) edges.push_back(std::move(to));
  return {own_node(new InputNode(like, std::move(edges))), 0};
}

namespace {

/// Goes over the history of tensors, up to input nodes, and replaces edges. `refuse` may end the walk with a reason.
class Walk {
 public:
  explicit Walk(const ReplaceEdge& replace, std::unordered_set<Node*>* reached = nullptr)
      : replace_(replace), seen_(reached != nullptr ? *reached : own_) {}

  // The history of a view as it was made last: who asks autograd for it makes it anew, under a lock that the caller may hold.
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
      if (dynamic_cast<const InputNode*>(&node) != nullptr) continue;
      replace_all(node);
      // A write to a view: the node of the write has the same edges, and LibTorch checks it.
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
             "functions "
             "on its tensors";
    }
    return std::nullopt;
  });
}

void redirect_edges(const std::vector<at::Tensor>& made, const ReplaceEdge& replace) {
  Walk walk(replace);
  for (const at::Tensor& tensor : made) walk.begin_at(tensor);
  walk.run([](Node&) { return std::optional<std::string>(); });
}

void forget_symbols(const std::vector<at::Tensor>& made) {
  std::vector<at::Tensor> tensors;
  cache::KeyBytes key;
  Facts facts;
  std::vector<FactOrigin> origins;
  const auto forget = [](auto& sizes) {
    for (c10::SymInt& size : sizes) size = size.guard_int(__FILE__, __LINE__);
  };
  const auto forget_in = [&](Node& node) -> std::optional<std::string> {
    for (uint32_t i = 0; i < node.num_inputs(); ++i) {
      auto& metadata = node.mutable_input_metadata(i);
      if (!metadata.was_default_constructed() && !metadata.is_nested_tensor()) forget(metadata.mutable_shape_as_dim_vector());
    }
    auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node);
    if (copy != nullptr) {
      for (at::TensorGeometry* geometry : {&copy->base, &copy->view}) {
        forget(geometry->mutable_sizes());
        forget(geometry->mutable_strides());
        geometry->mutable_storage_offset() = geometry->sym_storage_offset().guard_int(__FILE__, __LINE__);
        geometry->recompute();
      }
    }
    Node* const formula = copy != nullptr ? copy->fn.get() : &node;
    const TypedCollector* const typed = formula != nullptr ? find_typed_collector(*formula) : nullptr;
    if (typed == nullptr) return std::nullopt;
    key.clear();
    facts.clear();
    tensors.clear();
    origins.clear();
    FieldSink sink(key, facts, tensors);
    sink.begin_node(0);
    sink.origins = &origins;
    sink.forgets_symbols = true;
    const std::lock_guard lock(node_mutex(*formula));
    try {
      typed->collect(*formula, sink);
    } catch (const CannotCollect&) {  // its formula says so, when it runs
    }
    return std::nullopt;
  };
  const ReplaceEdge none = [](const Edge&) { return std::nullopt; };
  Walk walk(none);
  for (const at::Tensor& tensor : made) walk.begin_at(tensor);
  walk.run(forget_in);
}

std::optional<std::unordered_map<const c10::TensorImpl*, size_t>> saved_in_history(const std::vector<at::Tensor>& made,
                                                                                   const std::vector<Edge>& also) {
  std::unordered_map<const c10::TensorImpl*, size_t> references;
  std::vector<at::Tensor> tensors;
  cache::KeyBytes key;
  Facts facts;
  const auto look_into = [&](Node& node) -> std::optional<std::string> {
    if (dynamic_cast<const InputNode*>(&node) != nullptr) return std::nullopt;
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)) {
      tensors.push_back(leaf->variable);
      return std::nullopt;
    }
    if (typeid(node) == typeid(torch::autograd::CopyBackwards)) return std::nullopt;
    const auto* copy = dynamic_cast<torch::autograd::CopySlices*>(&node);
    Node* const formula = copy != nullptr ? copy->fn.get() : &node;
    const TypedCollector* const typed = formula != nullptr ? find_typed_collector(*formula) : nullptr;
    if (typed == nullptr) return "";
    key.clear();
    facts.clear();
    FieldSink sink(key, facts, tensors);
    sink.begin_node(0);
    const std::lock_guard lock(node_mutex(*formula));
    try {
      typed->collect(*formula, sink);
    } catch (const CannotCollect&) {
      return "";
    }
    return sink.opaque_reason == FieldSink::kSavedWithHooks ? std::optional<std::string>("") : std::nullopt;
  };
  const ReplaceEdge none = [](const Edge&) { return std::nullopt; };
  Walk walk(none);
  for (const Edge& edge : also) walk.begin_at(edge);
  for (const at::Tensor& tensor : made) {
    walk.begin_at(tensor);
    if (!tensor.is_view()) continue;
    const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
    if (meta->has_bw_view()) tensors.push_back(meta->get_backward_view().base_);
    if (meta->has_fw_view() && !meta->shared_view_info()) tensors.push_back(meta->get_forward_view().base_);
  }
  if (walk.run(look_into)) return std::nullopt;
  for (const at::Tensor& tensor : tensors) ++references[tensor.unsafeGetTensorImpl()];
  return references;
}

}  // namespace hindcast::capture
