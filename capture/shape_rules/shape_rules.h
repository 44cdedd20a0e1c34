#pragma once
// Infers symbolic sizes of an ATen op's results from the symbolic sizes of its arguments.
//
// A rule never turns a dynamic size into a number silently. Where it decides by a hint (which of two sizes is the 1 of a broadcast, whether
// two different expressions are equal, which end of a slice is clipped) it records the relation in the table. An op without a rule is left
// to the caller, which pins every size that reaches the op.
//
// Rules are rows of tables, one table per family: pointwise.cpp, reductions, views, indexing, matmul, linalg, convolutions (with pooling,
// padding and resizing), norms (normalisation, losses, attention) and factories.

#include "hindcast/symbols.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <variant>
#include <vector>

namespace hindcast::capture {

using Sizes = std::vector<ExprId>;

/// A tensor of a `Tensor?[]` list; indexing must distinguish masks from numbers.
struct IndexTensor {
  Sizes sizes;
  at::ScalarType dtype;
};

/// One argument of an op, as seen while tracing. Undefined tensors are `other` arguments that hold None.
struct Argument {
  static Argument tensor(Sizes sizes) { return {std::move(sizes)}; }
  static Argument tensors(std::vector<Sizes> list) { return {std::move(list)}; }
  static Argument optional_tensors(std::vector<std::optional<IndexTensor>> list) { return {std::move(list)}; }
  /// Anything that is not a tensor; the SymInts in it may be symbolic.
  static Argument other(c10::IValue value) { return {std::move(value)}; }

  std::variant<Sizes, std::vector<Sizes>, std::vector<std::optional<IndexTensor>>, c10::IValue> value;
};

/// Sizes of each output tensor, lists flattened and results that are not tensors left out. `args` is complete and in the schema's order.
/// `real_outputs` are the actual sizes of the outputs, empty for an undefined one. nullopt if no rule supports the op, or this use of it.
std::optional<std::vector<Sizes>> infer_sizes(const c10::OperatorHandle& op, const std::vector<Argument>& args, SymbolTable& symbols,
                                              c10::ArrayRef<std::vector<int64_t>> real_outputs);

/// False if a rule contradicts the actual sizes.
bool matches_hints(const std::vector<Sizes>& sizes, const SymbolTable& symbols, c10::ArrayRef<std::vector<int64_t>> real_outputs);

bool has_shape_rule(const c10::OperatorHandle& op);

/// Puts a size into the table that no tensor of a group norm's backward has, but that its kernel needs. After the capture that is
/// impossible: the table is read-only then.
void intern_channels_of_a_group(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, SymbolTable& symbols);

}  // namespace hindcast::capture
