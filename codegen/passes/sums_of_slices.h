#pragma once

#include "codegen/fuse/cost_model.h"
#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// A loop over `x[:, t]` gives `x` a gradient for each step, as large as all of `x` and 0 but for one slice: their sum takes time by
/// the square of the number of steps. Here each is added where it belongs, to the slice of the sum.
///
/// All bits stay but the sign of zeros: -0 to which nothing is added is not 0.
Rewrite sums_of_slices(const capture::Graph& graph, const CostModel& costs);

}  // namespace hindcast::codegen
