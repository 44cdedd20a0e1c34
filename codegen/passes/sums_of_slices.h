#pragma once

#include "codegen/fuse/cost_model.h"
#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// A loop over `x[:, t]` gives `x` one gradient per iteration, as large as `x` and 0 outside one slice: their sum takes time quadratic in
/// the number of iterations. This pass adds each incoming gradient to its slice of the sum instead.
///
/// Preserves all bits but the sign of zeros: a -0 to which no 0 is added remains -0.
Rewrite sums_of_slices(const capture::Graph& graph, const CostModel& costs);

}  // namespace hindcast::codegen
