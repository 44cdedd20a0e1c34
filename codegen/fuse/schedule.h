#pragma once
// The order in which a plan runs a graph's instrs, with groups of them as one kernel each.

#include "capture/graph/graph.h"
#include "codegen/fuse/group.h"

#include <vector>

namespace hindcast::codegen {

/// Instrs that are in no item are not needed.
struct Schedule {
  struct Item {
    bool is_group = false;
    uint32_t index = 0;  // into groups, or Graph::instrs
  };
  std::vector<Group> groups;
  std::vector<Item> items;

  /// Every instr as it stands.
  static Schedule unfused(const capture::Graph& graph);

  /// Somewhere in the graph its rest may be left to somebody else. Where not, nobody asks for what events only wait with, and they are
  /// in no schedule.
  static bool may_be_left(const capture::Graph& graph);
};

}  // namespace hindcast::codegen
