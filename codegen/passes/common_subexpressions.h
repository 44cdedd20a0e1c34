#pragma once

#include "codegen/fuse/cost_model.h"
#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Common subexpression elimination: removes ops that repeat an earlier op of the same segment. For example, two biases that are added to
/// one sum have the same gradient, which is computed twice.
///
/// A shared value is alive from its first use to its last. If that would raise peak memory, the op is kept: only values that are small, or
/// that are alive anyway at the repeated op, are shared.
Rewrite common_subexpressions(const capture::Graph& graph, const CostModel& costs);

}  // namespace hindcast::codegen
