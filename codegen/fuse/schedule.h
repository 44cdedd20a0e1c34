#pragma once
// The order in which a plan runs a graph's instrs and groups; each group is one kernel.

#include "codegen/fuse/group.h"
#include "hindcast/graph.h"

#include <vector>

namespace hindcast::codegen {

/// Instrs that are in no item do not run.
struct Schedule {
  struct Item {
    bool is_group = false;
    uint32_t index = 0;  // into groups, or Graph::instrs
  };
  std::vector<Group> groups;
  std::vector<Item> items;

  /// Every instr alone, in captured order.
  static Schedule unfused(const capture::Graph& graph);

  /// Whether the rest of the graph may be handed back to the stock engine at some point. If not, no one needs the gradients that events
  /// only hold for that case, and those events are in no schedule.
  static bool may_be_left(const capture::Graph& graph);
};

}  // namespace hindcast::codegen
