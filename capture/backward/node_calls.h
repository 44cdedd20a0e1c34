#pragma once
// LibTorch's functional form of a node: `apply_with_saved` passes us, through PyCompilerInterface, a pure function and its packed
// arguments. We only store them; the tracer calls the function itself, outside LibTorch's locks and ours.

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <vector>

namespace hindcast::capture {

struct NodeFunction {
  torch::autograd::functional_apply_t apply;  // (gradients, packed arguments) -> gradients
  std::vector<at::TypePtr> schema;            // type of each packed argument
  bool is_custom = false;                     // C++ torch::autograd::Function
  bool is_traceable = true;                   // declared by a custom function
};

struct PackedNode {
  std::shared_ptr<const NodeFunction> function;  // nullptr: the class binds under another name, or someone else bound it first
  std::string name;                              // name under which it was bound, permanently; empty for a custom function
  std::vector<at::IValue> arguments;             // tensors are those of the visitor, in order of collection
  std::vector<const c10::TensorImpl*> visited;   // tensors as the visitor numbers them (each once per node)
};

/// Runs the node's visitor and its apply_with_saved with a recording interface. Takes the process-wide trace lock and the
/// node's mutex. Throws what LibTorch throws for a node that it cannot pack.
PackedNode pack_node(torch::autograd::Node& node);

/// The function that a class has bound under PackedNode::name; nullptr if none.
std::shared_ptr<const NodeFunction> find_function(const std::string& name);

struct Declared {
  const char* why_opaque = nullptr;  // nullptr: it is declared traceable
  bool holds_for_class = true;       // false: this node could not be asked
};
/// Asks a C++ custom Function's node whether it was declared traceable. The caller holds the node's mutex.
Declared ask_what_is_declared(torch::autograd::Node& node);

}  // namespace hindcast::capture
