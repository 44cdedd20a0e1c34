#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Rewrites fills so that they read no tensor. `new_zeros(x, size)` becomes `zeros(size)`: only the type of `x` is used, but the kernel
/// that computes `x` would have to run before. `ones_like(loss)`, with which a backward starts, becomes `full`. So do its negative and its
/// product or quotient with numbers, as in the gradient of `0.5 * a - b`; otherwise each would be a kernel of one element.
Rewrite fills(const capture::Graph& graph);

}  // namespace hindcast::codegen
