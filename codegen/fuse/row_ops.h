#pragma once
// ATen ops that go over a row more than once, or sum over rows: norms, softmax, losses over classes, and gradients of these.

#include "codegen/fuse/member.h"

#include <functional>
#include <optional>

namespace hindcast::codegen {

/// Fills in the domain, the dims of a row, the operands and the expression; false when the arguments ask for something else.
using RowOp = std::function<bool(const capture::Graph& graph, const capture::Instr& instr, Member& member)>;

/// Null for any other op.
const RowOp* find_row_op(const c10::OperatorHandle& op);

}  // namespace hindcast::codegen
