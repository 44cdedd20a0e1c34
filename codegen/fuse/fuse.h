#pragma once
// Which instrs become one kernel, and in what order everything then runs.
//
// One pass over the graph, in its order. An op joins the open group that makes one of its operands, merges several, or joins
// a group over the same domain. A group runs where its last member stood: it is closed, and takes that place, before anything
// else reads what it makes; sums of what it makes are drawn into it first. Accumulation and results of grad() are not in its
// way: nobody can see when they happen between two boundaries, so they follow the kernel. Groups do not cross boundaries.

#include "capture/graph/graph.h"
#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/schedule.h"

namespace hindcast::codegen {

/// `costs`: of the device that the kernels are for.
Schedule fuse(const capture::Graph& graph, const CostModel& costs);

}  // namespace hindcast::codegen
