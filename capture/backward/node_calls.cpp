#include "capture/backward/node_calls.h"

#include "capture/backward/libtorch_access.h"
#include "capture/backward/visitor.h"
#include "base/check.h"
#include "base/fork.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <mutex>
#include <unordered_map>

namespace hindcast::capture {
namespace {

using namespace torch::dynamo::autograd;
using torch::autograd::Node;
using torch::autograd::variable_list;

// A generated class binds its function once per process (a static flag in its apply_with_saved), so it is kept permanently. A custom
// function binds at every call, possibly with another schema.
struct BoundFunctions {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Trace};  // one trace at a time: LibTorch has one interface per process
  std::unordered_map<std::string, std::shared_ptr<const NodeFunction>> by_name;
};
BoundFunctions& bound_functions() {
  static constinit base::MadeOnce<BoundFunctions> functions;  // never destroyed: nodes may outlive static destructors
  return functions.get();
}

struct PackingInterface final : PyCompilerInterface {
  explicit PackingInterface(PackedNode& packed) : packed(packed) {}

  std::string bind_function(PyObject*, const std::string& name, functional_apply_t function, std::vector<at::TypePtr> schema,
                            bool is_custom, bool is_traceable) const override {
    auto bound = std::make_shared<const NodeFunction>(NodeFunction{std::move(function), std::move(schema), is_custom, is_traceable});
    if (is_custom) {
      custom = std::move(bound);
    } else {
      bound_functions().by_name.insert_or_assign(name, std::move(bound));
    }
    return name;
  }

  variable_list call_function(PyObject*, const char*, const std::string& name, const variable_list&, const ivalue_list& arguments,
                              const c10::IValue&) const override {
    packed.arguments = arguments;
    if (custom) {
      packed.function = std::move(custom);
    } else if (auto found = bound_functions().by_name.find(name); found != bound_functions().by_name.end()) {
      packed.function = found->second;
      packed.name = name;
    }
    return {};
  }

  PackedNode& packed;
  mutable std::shared_ptr<const NodeFunction> custom;
};

// The caller holds both locks.
PackedNode pack_locked(Node& node) {
  AutogradCompilerCall compiler(SizeInput::STATIC);
  torch::dynamo::autograd::NodeCall node_call(0, node.getptr());
  {
    CompiledNodeArgs args(compiler, node_call);
    node.compiled_args(args);
  }
  PackedNode packed;
  for (const auto& tensor : compiler.tensor_args.inputs) {
    compiler.tensor_args.lookup(tensor).proxy_tensor = tensor;  // the node packs the very tensors we collected
    packed.visited.push_back(tensor.unsafeGetTensorImpl());
  }
  for (auto& lifted : compiler.lifted_ivalue_args.args) lifted.proxy = *lifted.actual_ptr;
  TraceState state(std::vector<std::optional<c10::SymInt>>(compiler.all_size_inputs.size()), 0);
  SwapSavedVariables saved(compiler, state, nullptr, node_call);
  PyCompilerGuard guard(std::make_unique<PackingInterface>(packed));
  node.apply_with_saved(variable_list(node.num_inputs()), saved);
  return packed;
}

}  // namespace

PackedNode pack_node(Node& node) {
  const std::lock_guard process(bound_functions().mutex);
  const std::lock_guard lock(node_mutex(node));
  return pack_locked(node);
}

std::shared_ptr<const NodeFunction> find_function(const std::string& name) {
  const std::lock_guard process(bound_functions().mutex);
  const auto found = bound_functions().by_name.find(name);
  return found == bound_functions().by_name.end() ? nullptr : found->second;
}

Declared ask_what_is_declared(Node& node) {
  const std::lock_guard process(bound_functions().mutex);
  try {
    const PackedNode packed = pack_locked(node);
    if (packed.function && packed.function->is_traceable) return {};
    return {"custom Function that is not declared traceable"};
  } catch (const std::exception& error) {
    const char* why = why_class_is_refused(error);
    return {why != nullptr ? why : kNotVisited, why != nullptr};
  }
}

}  // namespace hindcast::capture
