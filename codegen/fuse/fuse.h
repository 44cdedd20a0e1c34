#pragma once
// Which instrs become one kernel, and in what order everything then runs.
//
// One pass over the graph, in its order. An op joins the open group that makes one of its operands, merges several, or joins
// a group over the same domain. A group runs where its last member stood: it is closed, and takes that place, before anything
// else reads what it makes; sums of what it makes are drawn into it first. Accumulation and results of grad() are not in its
// way: nobody can see when they happen between two boundaries, so they follow the kernel. Groups do not cross boundaries.

#include "capture/graph/graph.h"
#include "codegen/fuse/group.h"

#include <vector>

namespace hindcast::codegen {

/// The order in which a plan runs a graph's instrs; those that are in no item are not needed.
struct Schedule {
  struct Item {
    bool is_group = false;
    uint32_t index = 0;     // into groups, or Graph::instrs
    uint32_t end_call = 0;  // NodeStart and boundaries: where user code ran, nodes up to here are looked at again
  };
  std::vector<Group> groups;
  std::vector<Item> items;

  /// Every instr as it stands.
  static Schedule unfused(const capture::Graph& graph);
};

Schedule fuse(const capture::Graph& graph);

}  // namespace hindcast::codegen
