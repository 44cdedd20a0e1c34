#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Replaces the tensor that ATen made of a number, as in `x + 0.1`, by the number, if ATen rounds it to the 16 bits of the other operand. A
/// kernel would read the tensor without rounding, so it could not compute the op.
Rewrite numbers(const capture::Graph& graph);

}  // namespace hindcast::codegen
