#include "capture/backward/packed_args.h"

#include "base/check.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

namespace hindcast::capture {
namespace {

using c10::IValue;
using c10::TypeKind;

class Replacer {
 public:
  Replacer(const PackedNode& packed, const NodeCall& call, const Substitution& substitution)
      : packed_(packed), call_(call), substitution_(substitution) {}

  IValue replace(const IValue& value, const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::TensorType:
        return tensor(value.isNone() ? at::Tensor() : value.toTensor());
      case TypeKind::OptionalType:
        return value.isNone() ? value : replace(value, *type.castRaw<c10::OptionalType>()->getElementType());
      case TypeKind::ListType:
        return list(value, *type.castRaw<c10::ListType>()->getElementType());
      case TypeKind::TupleType: {
        std::vector<IValue> items;
        const auto& elements = value.toTupleRef().elements();
        const auto types = type.castRaw<c10::TupleType>()->elements();
        for (size_t i = 0; i < types.size(); ++i) items.push_back(replace(elements[i], *types[i]));
        return c10::ivalue::Tuple::create(std::move(items));
      }
      case TypeKind::SymIntType:
        return size(value);
      case TypeKind::FloatType:
      case TypeKind::NumberType:
        return scalar(value);
      default:
        return without_tensors(value);
    }
  }

  IValue scalar(uint32_t k, const IValue& value) const {
    if (!value.isDouble() || !substitution_.scalar) return value;
    const auto lifted = substitution_.scalar(k, value.toDouble());
    return lifted ? IValue(*lifted) : value;
  }

  // Metadata of a custom Function's results: a tuple per result, with its sizes in the fourth place. They are the last sizes of the node.
  IValue metadata(const IValue& packed) {
    if (!substitution_.size) return packed;
    constexpr size_t kSizes = 3;
    if (!packed.isList()) HC_UNSUPPORTED("{}: packs the metadata of its results in a {}", call_.node->name(), packed.tagKind());
    size_t count = 0;
    for (const IValue& result : packed.toListRef()) count += result.toTupleRef().elements().at(kSizes).toSymIntVector().size();
    if (count > substitution_.sizes) HC_UNSUPPORTED("packed sizes differ from those collected");
    sizes_ = substitution_.sizes - static_cast<uint32_t>(count);
    c10::impl::GenericList list(packed.toList().elementType());
    for (const IValue& result : packed.toListRef()) {
      std::vector<IValue> elements = result.toTupleRef().elements().vec();
      std::vector<c10::SymInt> sizes;
      for (const c10::SymInt& each : elements[kSizes].toSymIntVector()) sizes.push_back(size(each).toSymInt());
      elements[kSizes] = sizes;
      list.push_back(c10::ivalue::Tuple::create(std::move(elements)));
    }
    return list;
  }

  void expect_all_tensors() const {
    if (call_.kind == NodeKind::Typed && tensors_ != call_.tensor_count) {
      HC_UNSUPPORTED("{}: {} tensors packed, expected the {} collected", call_.node->name(), tensors_, call_.tensor_count);
    }
  }

 private:
  at::Tensor tensor(const at::Tensor& packed) {
    uint32_t slot = tensors_++;
    if (call_.kind == NodeKind::Visited) {  // LibTorch's visitor counts each tensor once
      if (!packed.defined()) return packed;
      const auto found = std::find(packed_.visited.begin(), packed_.visited.end(), packed.unsafeGetTensorImpl());
      if (found == packed_.visited.end()) HC_UNSUPPORTED("{}: packs a tensor that it did not collect", call_.node->name());
      slot = static_cast<uint32_t>(found - packed_.visited.begin());
    }
    if (slot >= call_.tensor_count) HC_UNSUPPORTED("{}: packs more than the {} tensors collected", call_.node->name(), call_.tensor_count);
    return substitution_.tensor(slot);
  }

  IValue list(const IValue& value, const c10::Type& element) {
    if (element.kind() == TypeKind::TensorType) {
      c10::List<at::Tensor> result;
      for (const at::Tensor& item : value.toTensorVector()) result.push_back(tensor(item));
      return result;
    }
    if (element.kind() == TypeKind::OptionalType &&
        element.castRaw<c10::OptionalType>()->getElementType()->kind() == TypeKind::TensorType) {
      // An undefined saved tensor is packed as "no tensor" but was still collected.
      c10::List<std::optional<at::Tensor>> result;
      const auto items = value.toListRef();
      for (const IValue& item : items) {
        at::Tensor replaced = tensor(item.isNone() ? at::Tensor() : item.toTensor());
        result.push_back(replaced.defined() ? std::optional(std::move(replaced)) : std::nullopt);
      }
      return result;
    }
    if (element.kind() == TypeKind::SymIntType) {
      std::vector<c10::SymInt> result;
      for (const c10::SymInt& item : value.toSymIntVector()) result.push_back(size(item).toSymInt());
      return result;
    }
    if (element.kind() == TypeKind::NumberType || element.kind() == TypeKind::TupleType || element.kind() == TypeKind::ListType) {
      c10::impl::GenericList result(value.toList().elementType());
      for (const IValue& item : value.toListRef()) result.push_back(replace(item, element));
      return result;
    }
    return without_tensors(value);
  }

  // What is not walked (a Dict, a list of anything) must hold nothing that changes from step to step.
  const IValue& without_tensors(const IValue& value) const {
    const bool container = value.isGenericDict() || value.isList() || value.isTuple() || value.isObject();
    bool holds_tensor = value.isTensor();
    if (container) value.visit([&](const IValue& item) { return holds_tensor |= item.isTensor(); });
    if (holds_tensor) HC_UNSUPPORTED("{}: keeps tensors in a {}", call_.node->name(), value.tagKind());
    return value;
  }

  IValue size(const IValue& value) {
    const uint32_t k = sizes_++;
    return substitution_.size ? IValue(substitution_.size(k, value.toSymInt().expect_int())) : value;
  }

  IValue scalar(const IValue& value) {
    if (call_.kind == NodeKind::Visited) return value;
    const uint32_t k = scalars_;
    scalars_ += value.isComplexDouble() ? 2 : 1;
    return scalar(k, value);
  }

  const PackedNode& packed_;
  const NodeCall& call_;
  const Substitution& substitution_;
  uint32_t tensors_ = 0, sizes_ = 0, scalars_ = 0;
};

// Where a custom Function packs values that may be symbols: the keys of its saved_data, the values in that order, four more, then the
// metadata of its results. LibTorch's visitor goes in key order, and visits the metadata of the arguments before that of the results.
struct CustomArguments {
  explicit CustomArguments(const PackedNode& packed) : lifted(packed.arguments.size()) {
    if (!packed.function->is_custom) return;
    std::map<std::string, size_t> by_key;
    for (const IValue& key : packed.arguments.at(0).toListRef()) by_key.emplace(key.toStringRef(), by_key.size() + 1);
    uint32_t count = 0;
    for (const auto& [key, argument] : by_key) {
      const IValue& value = packed.arguments.at(argument);
      if (value.isInt() || value.isSymInt() || value.isDouble() || value.isSymFloat()) lifted[argument] = count++;
    }
    results = by_key.size() + 5;
  }

  std::vector<std::optional<uint32_t>> lifted;  // by argument, its number among those that the visitor lifts
  size_t results = 0;                           // index of the argument; 0: not a custom Function
};

}  // namespace

std::vector<IValue> substitute(const PackedNode& packed, const NodeCall& call, const Substitution& substitution) {
  const auto& schema = packed.function->schema;
  if (schema.size() != packed.arguments.size()) {
    HC_UNSUPPORTED("{}: {} packed arguments, its schema has {}", call.node->name(), packed.arguments.size(), schema.size());
  }
  Replacer replacer(packed, call, substitution);
  std::vector<IValue> arguments;
  const CustomArguments custom(packed);
  for (size_t i = 0; i < schema.size(); ++i) {
    const IValue& argument = packed.arguments[i];
    if (custom.lifted[i]) {
      arguments.push_back(replacer.scalar(*custom.lifted[i], argument));
    } else if (custom.results != 0 && i == custom.results) {
      arguments.push_back(replacer.metadata(argument));
    } else {
      arguments.push_back(replacer.replace(argument, *schema[i]));
    }
  }
  replacer.expect_all_tensors();
  return arguments;
}

}  // namespace hindcast::capture
