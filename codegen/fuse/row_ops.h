#pragma once
// ATen ops that pass over a row more than once, or reduce over rows: norms, softmax, losses over classes, and gradients of these.

#include "codegen/fuse/member.h"

#include <functional>
#include <optional>

namespace hindcast::codegen {

/// Fills in the member's domain, row dims, operands and expression; returns false if the arguments are not supported.
using RowOp = std::function<bool(const capture::Graph& graph, const capture::Instr& instr, Member& member)>;

/// A RowOp for `scatter_add_` to a whole tensor, `self`.
bool scatter_add(const capture::Graph& graph, const capture::Instr& instr, capture::ValueId self, Member& member);

/// nullptr for any other op.
const RowOp* find_row_op(const c10::OperatorHandle& op);

}  // namespace hindcast::codegen
