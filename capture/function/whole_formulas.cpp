#include "capture/function/whole_formulas.h"

#include "base/check.h"
#include "base/fork.h"
#include "capture/backward/node_calls.h"
#include "capture/function/history.h"
#include "capture/graph/shared_memory.h"
#include "capture/graph/users_op.h"
#include "capture/recorder/recorder.h"

#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace hindcast::capture {

using c10::IValue;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

bool looks_at_values(const Node& node) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "ProdBackward0",   "ProdBackward1",      "CumprodBackward0",    "MaxBackward1",       "MinBackward1",
      "MedianBackward0", "NanmedianBackward0", "MaskedFillBackward1", "LinalgEigBackward0",
  };
  const std::string name = node.name();
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// A program assumes that each result has its own memory.
at::Tensor own(at::Tensor result, const std::vector<IValue>& arguments) {
  bool is_shared = false;
  for (const IValue& argument : arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      is_shared = is_shared || (result.defined() && tensor.defined() && shares_memory(result, tensor));
      return tensor;
    });
  }
  return is_shared ? result.clone() : result;
}

void call_formula(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const std::vector<IValue> arguments = torch::jit::pop(*stack, 5);
  variable_list gradients;
  for (const auto& gradient : arguments[0].toOptionalTensorVector()) gradients.push_back(gradient.value_or(at::Tensor()));
  const auto saved = arguments[1].toOptionalTensorVector();
  std::vector<IValue> packed;
  auto next = saved.begin();
  for (const IValue& argument : arguments[4].toListRef()) {
    packed.push_back(argument.isTensor() ? IValue((*next++).value_or(at::Tensor())) : argument);
  }
  const auto function = find_function(arguments[3].toStringRef());
  HC_CHECK(function != nullptr, "no function is registered as {}", arguments[3].toStringRef());
  c10::List<at::Tensor> results;
  for (at::Tensor& result : function->apply(std::move(gradients), packed)) results.push_back(own(std::move(result), arguments));
  stack->emplace_back(std::move(results));
}

const c10::OperatorHandle& formula_op() {
  static constinit base::MadeOnce<const c10::OperatorHandle> op;
  return op.by([] {
    auto& library = *new torch::Library(torch::Library::FRAGMENT, "hindcast", std::nullopt, __FILE__, __LINE__);
    library.def("formula(Tensor?[] gradients, Tensor?[] saved, SymInt[] sizes, str name, Any[] arguments) -> Tensor[]");
    // Autograd, transforms and modes decompose it; the recorder does not (op_traits.cpp).
    for (const auto key : {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched})
      library.impl("formula", key, torch::CppFunction::makeFromBoxedFunction<&call_formula>());
    return c10::Dispatcher::singleton().findSchemaOrThrow("hindcast::formula", "");
  });
}

c10::List<std::optional<at::Tensor>> optional(const std::vector<at::Tensor>& tensors) {
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& tensor : tensors) list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  return list;
}

// It has no release_variables(): LibTorch calls that for a node it destroys, and this node is destroyed with the trace, while a
// derivative's history may still lead to the wrapped node.
class WholeFormula final : public Node {
 public:
  explicit WholeFormula(NodePtr node) : Node(node->sequence_nr(), torch::autograd::edge_list(node->next_edges())), node_(std::move(node)) {
    for (uint32_t i = 0; i < node_->num_inputs(); ++i) input_metadata_.emplace_back(node_->input_metadata(i));
  }

  std::string name() const override { return node_->name(); }

  variable_list apply(variable_list&& gradients) override {
    // The node reads its edges to see which results are needed.
    node_->next_edges() = next_edges();
    Recorder* const recorder = Recorder::current();
    if (recorder == nullptr || recorder->is_released()) return (*node_)(std::move(gradients));
    if (has_saved_tensor_hooks(*node_)) {
      recorder->refuse(name() + " branches on values, and a checkpoint or saved-tensor hooks hold what it has saved");
      return (*node_)(std::move(gradients));
    }
    const PackedNode packed = pack_node(*node_);
    if (packed.name.empty() || find_function(packed.name) == nullptr) return (*node_)(std::move(gradients));
    std::vector<at::Tensor> saved;
    c10::impl::GenericList arguments(c10::AnyType::get());
    for (const IValue& argument : packed.arguments) {
      if (argument.isTensor()) saved.push_back(argument.toTensor());
      arguments.push_back(argument.isTensor() ? IValue(at::Tensor()) : argument);
    }
    std::vector<c10::SymInt> sizes;
    for (const Edge& edge : next_edges()) {
      if (!edge.is_valid()) continue;
      for (const c10::SymInt& size : edge.function->input_metadata(edge.input_nr).shape_as_dim_vector()) sizes.push_back(size);
    }
    torch::jit::Stack stack{optional(gradients), optional(saved), std::move(sizes), packed.name, std::move(arguments)};
    recorder->record(formula_op(), &stack);
    return stack[0].toTensorVector();
  }

 private:
  const NodePtr node_;
};

}  // namespace

void WholeFormulas::put_into(const std::vector<at::Tensor>& made) {
  const auto whole = [this](Node& node) -> NodePtr {
    if (const auto known = instead_of_.find(&node); known != instead_of_.end()) return known->second;
    if (!looks_at_values(node) || dynamic_cast<WholeFormula*>(&node) != nullptr) return nullptr;
    return instead_of_.emplace(&node, own_node(new WholeFormula(node.getptr()))).first->second;
  };
  redirect_edges(made, [&](const Edge& edge) -> std::optional<Edge> {
    const NodePtr other = whole(*edge.function);
    return other ? std::optional(Edge(other, edge.input_nr)) : std::nullopt;
  });
  // Nodes that no other node leads to. Their own edges were visited already.
  for (const at::Tensor& tensor : made) {
    if (tensor.defined() && tensor.requires_grad() && !tensor.is_leaf()) whole(*torch::autograd::impl::gradient_edge(tensor).function);
  }
}

void WholeFormulas::take_out_of(const std::vector<at::Tensor>& made) {
  if (instead_of_.empty()) return;
  std::unordered_map<const Node*, Node*> wrapped;
  for (const auto& [node, whole] : instead_of_) {
    node->next_edges() = whole->next_edges();
    wrapped.emplace(whole.get(), node);
  }
  redirect_edges(made, [&](const Edge& edge) -> std::optional<Edge> {
    const auto found = wrapped.find(edge.function.get());
    return found == wrapped.end() ? std::nullopt : std::optional(Edge(found->second->getptr(), edge.input_nr));
  });
  instead_of_.clear();
}

Edge WholeFormulas::operator()(const Edge& edge) const {
  const auto found = instead_of_.find(edge.function.get());
  return found == instead_of_.end() ? edge : Edge(found->second, edge.input_nr);
}

}  // namespace hindcast::capture
