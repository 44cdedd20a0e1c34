#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Formulas are written for the general case: the gradient of `x * x` as a power has the power 1 in it, that of a linear layer's
/// weight is transposed twice. What gives back its argument, to the bit and for infinities, NaN and -0 as well, goes. Only
/// what occurs in graphs of real programs has a rule here.
///
/// A sum over dims of size 1 has none: it makes 0 of -0.
Rewrite simplify(const capture::Graph& graph);

}  // namespace hindcast::codegen
