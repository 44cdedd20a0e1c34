#pragma once

#include "codegen/fuse/cost_model.h"
#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Ops that compute what an earlier one of the same segment has computed go: two biases that are added to one sum have one gradient,
/// summed twice.
///
/// What is shared is kept from its first use to its last. Where that would raise the peak of memory it is computed again, as the
/// stock engine does: only what is small, or what is still there anyway when it would be made again, is shared.
Rewrite common_subexpressions(const capture::Graph& graph, const CostModel& costs);

}  // namespace hindcast::codegen
