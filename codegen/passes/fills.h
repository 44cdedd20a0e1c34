#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Fills read no tensors. `new_zeros(x, size)` becomes `zeros(size)`: it reads only the type of `x`, but would end the kernel that computes
/// `x`. The gradient that a backward starts with, `ones_like(loss)`, becomes a number, and so do its product with numbers and its negative,
/// as in the gradient of `0.5 * a - b`; without that, each is a kernel of one element.
Rewrite fills(const capture::Graph& graph);

}  // namespace hindcast::codegen
