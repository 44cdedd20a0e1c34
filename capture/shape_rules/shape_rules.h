#pragma once
// Symbolic sizes of what an ATen op makes, from the symbolic sizes of what it is given.
//
// A rule never turns a dynamic size into a number silently. Where it chooses by a hint (which of two sizes is the 1 of a
// broadcast, whether two different expressions are equal, which end of a slice is cut) it records the relation in the
// table. An op without a rule is the caller's to handle: it pins every size that reaches the op.
//
// Rules are rows of tables, one table a family: pointwise.cpp, reductions, views, indexing, matmul, convolutions (pooling,
// padding and resizing among them), norms (normalisation, losses, attention) and factories.

#include "capture/symbols/symbols.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <variant>
#include <vector>

namespace hindcast::capture {

using Sizes = std::vector<ExprId>;

/// A tensor of a `Tensor?[]` list; indexing needs to know masks from numbers.
struct IndexTensor {
  Sizes sizes;
  at::ScalarType dtype;
};

/// One argument of an op, as seen while tracing. Undefined tensors are `other` arguments that hold None.
struct Argument {
  static Argument tensor(Sizes sizes) { return {std::move(sizes)}; }
  static Argument tensors(std::vector<Sizes> list) { return {std::move(list)}; }
  static Argument optional_tensors(std::vector<std::optional<IndexTensor>> list) { return {std::move(list)}; }
  /// Anything that is no tensor; the SymInts in it may be symbolic.
  static Argument other(c10::IValue value) { return {std::move(value)}; }

  std::variant<Sizes, std::vector<Sizes>, std::vector<std::optional<IndexTensor>>, c10::IValue> value;
};

/// Sizes of each output tensor, lists flattened and results that are no tensors left out. `args` is complete and in the
/// schema's order. `real_outputs` are the sizes that the outputs had, empty for an undefined one. Nothing if no rule
/// knows the op, or this use of it.
std::optional<std::vector<Sizes>> infer_sizes(const c10::OperatorHandle& op, const std::vector<Argument>& args, SymbolTable& symbols,
                                              c10::ArrayRef<std::vector<int64_t>> real_outputs);

/// False if a rule was wrong about what really came out.
bool matches_hints(const std::vector<Sizes>& sizes, const SymbolTable& symbols, c10::ArrayRef<std::vector<int64_t>> real_outputs);

bool has_shape_rule(const c10::OperatorHandle& op);

/// Puts a size into the table that no tensor of a group norm's backward has, but by which a kernel of it goes. Behind the capture
/// nobody can: the table is only read then.
void intern_channels_of_a_group(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, SymbolTable& symbols);

}  // namespace hindcast::capture
