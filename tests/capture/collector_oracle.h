#pragma once
// Does a typed collector see what LibTorch sees? Three readings of one node must agree:
//   collector   the typed collector, through a FieldSink
//   visitor     LibTorch's compiled_args: tensors once each, and sizes, in order of collection
//   packed      LibTorch's apply_with_saved: the list that the node's functional form takes, one element per field

#include "capture/backward/field_sink.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/typed_collectors.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <bit>
#include <string>
#include <unordered_set>
#include <vector>

namespace hindcast::tests {

/// One thing that a trace lifts out of a field.
struct Lifted {
  enum class Kind { Tensor, Int, Float } kind;
  at::Tensor tensor;
  int64_t bits = 0;

  // An output is saved as a detached twin, and unpacked as a new tensor over the same memory, so impls may differ.
  bool operator==(const Lifted& other) const {
    if (kind != other.kind || bits != other.bits || tensor.defined() != other.tensor.defined()) return false;
    return !tensor.defined() || (tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
                                     other.tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() &&
                                 tensor.sizes() == other.tensor.sizes() && tensor.strides() == other.tensor.strides() &&
                                 tensor.storage_offset() == other.tensor.storage_offset() && tensor.dtype() == other.tensor.dtype());
  }
};
using Field = std::vector<Lifted>;

inline std::string describe(const Field& field) {
  std::string text = "[";
  for (const auto& lifted : field) {
    if (text.size() > 1) text += ", ";
    switch (lifted.kind) {
      case Lifted::Kind::Tensor:
        text += lifted.tensor.defined() ? "tensor" + c10::str(lifted.tensor.sizes()) : "undefined tensor";
        break;
      case Lifted::Kind::Int:
        text += std::to_string(lifted.bits);
        break;
      case Lifted::Kind::Float:
        text += std::to_string(std::bit_cast<double>(lifted.bits));
        break;
    }
  }
  return text + "]";
}

/// What the collector reports, per field; all sizes and all tensors also in one list each.
struct CollectorReading {
  std::vector<Field> fields;
  std::vector<int64_t> sizes;
  std::vector<at::Tensor> tensors;
  const char* opaque_reason = nullptr;
};

inline CollectorReading read_with_collector(const capture::TypedCollector& collector, const torch::autograd::Node& node) {
  using capture::FactKind;
  cache::KeyBytes key;
  capture::Facts facts;
  std::vector<capture::FactOrigin> origins;
  CollectorReading reading;
  capture::FieldSink sink(key, facts, reading.tensors);
  sink.origins = &origins;
  sink.begin_node(0, const_cast<torch::autograd::Node&>(node));
  collector.collect(node, sink);

  reading.opaque_reason = sink.opaque_reason;
  reading.fields.resize(collector.field_count);
  size_t next_tensor = 0;
  for (size_t i = 0; i < origins.size(); ++i) {
    Field& field = reading.fields.at(origins[i].field);
    switch (origins[i].kind) {
      case FactKind::TensorMeta:
        field.push_back({Lifted::Kind::Tensor, reading.tensors.at(next_tensor++)});
        break;
      case FactKind::SavedSize:
        reading.sizes.push_back(facts[i]);
        [[fallthrough]];
      case FactKind::ExactScalar:
        field.push_back({Lifted::Kind::Int, {}, facts[i]});
        break;
      case FactKind::FloatScalar:
        field.push_back({Lifted::Kind::Float, {}, facts[i]});
        break;
      default:
        break;  // sizes and strides of a tensor that is compared itself
    }
  }
  return reading;
}

inline Lifted lifted_float(double value) { return {Lifted::Kind::Float, {}, std::bit_cast<int64_t>(value)}; }
inline Lifted lifted_int(int64_t value) { return {Lifted::Kind::Int, {}, value}; }

/// The leaves of one packed argument, in order.
inline void flatten(const at::IValue& value, Field& out) {
  if (value.isTensor()) {
    out.push_back({Lifted::Kind::Tensor, value.toTensor()});
  } else if (value.isDouble()) {
    out.push_back(lifted_float(value.toDouble()));
  } else if (value.isComplexDouble()) {  // FieldSink keeps both parts exactly
    const auto complex = value.toComplexDouble();
    out.push_back(lifted_int(std::bit_cast<int64_t>(complex.real())));
    out.push_back(lifted_int(std::bit_cast<int64_t>(complex.imag())));
  } else if (value.isInt()) {
    out.push_back(lifted_int(value.toInt()));
  } else if (value.isBool()) {
    out.push_back(lifted_int(value.toBool()));
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    // TypeAndSize is (sizes, options): the options are constants.
    const bool is_type_and_size = elements.size() == 2 && elements[1].isTuple();
    for (size_t i = 0; i < (is_type_and_size ? 1 : elements.size()); ++i) flatten(elements[i], out);
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) flatten(element, out);
  }
}

/// A list of optional tensors packs an undefined one as None.
inline Field flatten_tensors(const at::IValue& value) {
  Field out;
  if (!value.isList()) {
    flatten(value, out);
    return out;
  }
  for (const auto& element : value.toListRef()) {
    out.push_back({Lifted::Kind::Tensor, element.isNone() ? at::Tensor() : element.toTensor()});
  }
  return out;
}

/// Empty if all three readings of the node agree, else the first difference as one line.
inline std::string first_disagreement(torch::autograd::Node& node) {
  using namespace torch::dynamo::autograd;
  const capture::TypedCollector* collector = capture::find_typed_collector(node);
  if (collector == nullptr) return "no typed collector";
  if (collector->name != node.name()) return std::string("found the collector of ") + collector->name;
  const CollectorReading reading = read_with_collector(*collector, node);
  if (reading.opaque_reason) return std::string("the sink calls it opaque: ") + reading.opaque_reason;

  AutogradCompilerCall call(SizeInput::DYNAMIC);
  NodeCall node_call(0, node.getptr());
  CompiledNodeArgs args(call, node_call);
  node.compiled_args(args);

  if (call.all_size_inputs.size() != reading.sizes.size()) {
    return c10::str("the visitor has ", call.all_size_inputs.size(), " sizes, the collector ", reading.sizes.size());
  }
  for (size_t i = 0; i < reading.sizes.size(); ++i) {
    if (call.all_size_inputs[i].value != reading.sizes[i]) {
      return c10::str("size ", i, " is ", call.all_size_inputs[i].value, " for the visitor, ", reading.sizes[i], " for the collector");
    }
  }
  std::unordered_set<const c10::TensorImpl*> seen;
  Field once;
  for (const auto& tensor : reading.tensors) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) once.push_back({Lifted::Kind::Tensor, tensor});
  }
  Field visited;
  for (const auto& tensor : call.tensor_args.inputs) visited.push_back({Lifted::Kind::Tensor, tensor});
  if (once != visited) return "tensors are " + describe(visited) + " for the visitor, " + describe(once) + " for the collector";

  const auto packed = capture::pack_node(node).arguments;
  const size_t count = collector->field_count;
  const bool packs_retain = packed.size() == count + 2 && packed.back().isBool();
  if (packed.size() != count + 1 && !packs_retain) {
    return c10::str("LibTorch packs ", packed.size(), " arguments, expected needs_input_grad and ", count, " fields");
  }
  for (size_t k = 0; k < count; ++k) {
    const Field& field = reading.fields[k];
    Field leaves;
    if (!field.empty() && field[0].kind == Lifted::Kind::Tensor) {
      leaves = flatten_tensors(packed[k + 1]);
    } else {
      flatten(packed[k + 1], leaves);
      if (capture::rounds_differently_for_symbols(node)) {  // its doubles are exact
        for (Lifted& leaf : leaves) leaf.kind = leaf.kind == Lifted::Kind::Float ? Lifted::Kind::Int : leaf.kind;
      }
      // A constant has nothing to lift; but a tensor or a double must never be taken for a constant.
      if (field.empty()) std::erase_if(leaves, [](const Lifted& leaf) { return leaf.kind == Lifted::Kind::Int; });
    }
    if (leaves != field) {
      return c10::str("field ", collector->fields[k], " is packed as ", describe(leaves), ", collected as ", describe(field));
    }
  }
  return "";
}

}  // namespace hindcast::tests
