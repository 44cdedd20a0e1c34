#pragma once
// Fusion: decides which instrs become one kernel, and in what order everything then runs.
//
// One pass over the graph, in its order. An op joins the open group that computes one of its operands, merges several such groups, or joins
// a group over the same domain. A group runs at the position of its last member: it is closed there, before anything else reads its
// results; sums of its results are first pulled into it. Accumulation and results of grad() do not close a group: their time between two
// boundaries is not observable, so they follow the kernel. Groups do not cross boundaries.

#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/schedule.h"
#include "hindcast/graph.h"

namespace hindcast::codegen {

/// `costs`: the cost model of the device that the kernels are for.
Schedule fuse(const capture::Graph& graph, const CostModel& costs);

}  // namespace hindcast::codegen
