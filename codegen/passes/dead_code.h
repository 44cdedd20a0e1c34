#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Dead code elimination: removes ops, writes to copies, and gradient sums whose results are not read. These are left by other passes, or
/// by formulas, such as the views through which they write. A gradient that is held for a node which does not read it is removed as well,
/// except at the first node of a segment: there the rest of a backward can be handed back to the stock engine, which needs all held
/// gradients.
Rewrite dead_code(const capture::Graph& graph);

}  // namespace hindcast::codegen
