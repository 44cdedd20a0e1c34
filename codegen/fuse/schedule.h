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
    uint32_t index = 0;     // into groups, or Graph::instrs
    uint32_t end_call = 0;  // NodeStart and boundaries: where user code ran, nodes up to here are looked at again
  };
  std::vector<Group> groups;
  std::vector<Item> items;

  /// Every instr as it stands.
  static Schedule unfused(const capture::Graph& graph);

  /// User code runs in the graph, or ran before: nodes are looked at again before their turn. A graph where none does has no NodeStart in
  /// its schedule.
  static bool looks_again(const capture::Graph& graph);
  /// The rest of the backward may be left here to the nodes themselves, since user code may have changed them.
  static bool may_be_left_at(const capture::Graph& graph, const Item& item);
};

}  // namespace hindcast::codegen
