#pragma once
// TorchScript values as arguments and results of compiled functions. Valid C++17.

#include <hindcast/tree.h>

#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <string>
#include <type_traits>
#include <vector>

namespace hindcast::detail {

/// The visitor of <hindcast/tree.h>, for values whose types are known at run time.
struct ValueVisitor {
  c10::function_ref<void(at::Tensor&)> tensor;
  c10::function_ref<void(const void*, std::size_t)> fact;
  bool replaces_tensors;  // false: containers are only read
};

/// Whether the value consists of tensors, numbers, strings, devices and None, and of lists, tuples and dictionaries of them.
HINDCAST_API bool can_visit(const c10::IValue& value);
/// A container whose tensors are replaced becomes a new one, since others may hold the old one too. For a value that can_visit() refuses,
/// its identity is a fact.
HINDCAST_API void visit(c10::IValue& value, const ValueVisitor& with);

struct Fingerprint;

struct ScriptValue {
  c10::IValue value;
};

template <class Value, class Visit>
void hindcast_visit(Value& value, Visit& with, const ScriptValue*) {
  // Lists and dictionaries are the caller's own, so what a function assigns in them is not lost.
  if constexpr (std::is_same_v<Visit, Fingerprint>) return;
  const auto tensor = [&](at::Tensor& each) { with.tensor(each); };
  const auto fact = [&](const void* bytes, std::size_t size) { with.fact(bytes, size); };
  constexpr bool replaces = !std::is_same_v<Visit, tree::Flatten>;
  // Flatten only reads.
  visit(const_cast<c10::IValue&>(value.value), ValueVisitor{tensor, fact, replaces});
}

using ScriptValues = std::vector<ScriptValue>;

}  // namespace hindcast::detail
