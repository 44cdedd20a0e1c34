#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Removes identities: ops that return their argument bit for bit, also for infinities, NaN and -0. They occur because derivative formulas
/// are written for the general case: the gradient of `x ** 2` contains a power of 1, and the gradient of a linear layer's weight is
/// transposed twice. Only identities that occur in real programs have a rule here.
///
/// A sum over dims of size 1 has no rule: it turns -0 into 0.
Rewrite simplify(const capture::Graph& graph);

}  // namespace hindcast::codegen
