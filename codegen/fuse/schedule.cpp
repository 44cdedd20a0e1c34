#include "codegen/fuse/schedule.h"

#include <algorithm>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;

bool Schedule::looks_again(const Graph& graph) {
  return graph.first_call != 0 || graph.stage != capture::Stage::NodeStart ||
         std::any_of(graph.instrs.begin(), graph.instrs.end(), [](const Instr& instr) { return capture::is_boundary(instr); });
}

bool Schedule::may_be_left_at(const Graph& graph, const Item& item) {
  if (item.is_group) return false;
  const Instr& instr = graph.instrs[item.index];
  return capture::is_boundary(instr) || (instr.kind == InstrKind::NodeStart && item.end_call != 0);
}

Schedule Schedule::unfused(const Graph& graph) {
  const bool has_node_starts = looks_again(graph);
  Schedule schedule;
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    const Instr& instr = graph.instrs[i];
    if (instr.kind != InstrKind::NodeStart || has_node_starts) schedule.items.push_back({false, i, instr.call + 1});
  }
  return schedule;
}

}  // namespace hindcast::codegen
