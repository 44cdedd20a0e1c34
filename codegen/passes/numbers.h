#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Replaces the tensor that ATen made of a number, as in `x + 0.1`, by the number, where ATen rounds it to the 16 bits of the other operand:
/// a kernel reads a tensor without dims as it is, and would add more digits.
Rewrite numbers(const capture::Graph& graph);

}  // namespace hindcast::codegen
