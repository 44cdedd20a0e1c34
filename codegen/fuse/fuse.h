#pragma once
// Which instrs become one kernel, and in what order everything then runs.
//
// One pass over the graph, in its order. A pointwise op joins the open group that makes one of its operands, merges several,
// or joins a group over the same domain. A group runs where its last member stood: it is closed, and takes that place,
// before anything else reads what it makes. Accumulation and results of grad() are not in its way: nobody can see when they
// happen between two boundaries, so they follow the kernel. Groups do not cross boundaries.

#include "capture/graph.h"
#include "codegen/fuse/body.h"

#include <string>
#include <vector>

namespace hindcast::codegen {

struct Group {
  std::vector<uint32_t> members;  // instrs, in order
  std::vector<uint32_t> views;    // broadcasts that it reads through
  std::vector<capture::ExprId> domain;
  std::vector<uint8_t> order;  // dims, outermost first, in which all its results are dense
  Body body;
  std::vector<capture::ValueId> loads;  // by Body::loads
  std::vector<capture::Arg> scalars;    // by Body's scalars: Constant, Int or Float
  std::vector<capture::ValueId> stores;
  std::string stopped;  // why it stopped growing
};

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

/// The group's members and the broadcasts that they read through, in the graph's order.
std::vector<uint32_t> instrs_of(const Group& group);

}  // namespace hindcast::codegen
