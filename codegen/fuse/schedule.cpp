#include "codegen/fuse/schedule.h"

#include <algorithm>

namespace hindcast::codegen {

using capture::EventOrder;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;

bool Schedule::may_be_left(const Graph& graph) {
  return std::any_of(graph.instrs.begin(), graph.instrs.end(), [](const Instr& instr) {
    return instr.kind == InstrKind::Event && (instr.order == EventOrder::Leave || instr.order == EventOrder::Barrier);
  });
}

Schedule Schedule::unfused(const Graph& graph) {
  const bool may_be_left = Schedule::may_be_left(graph);
  Schedule schedule;
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    if (may_be_left || !capture::waits(graph.instrs[i])) schedule.items.push_back({false, i});
  }
  return schedule;
}

}  // namespace hindcast::codegen
