// A gradient that waits at a node whose formula does not read it any more is needed only where the node might be left to the stock
// engine after all: the first node of a segment is looked at again, and then with all that the segment's kernels replace
// (codegen/fuse). What is computed behind that point, and waits no longer than its segment, nobody can ask for.

#include "codegen/passes/dead_code.h"

#include "codegen/passes/instr_key.h"

#include <algorithm>
#include <vector>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

namespace {

constexpr uint32_t kNone = 0xffffffffu;

// A Mutate's operator has an effect, but on nothing that others see.
bool may_go(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::Op:
      return is_pure(instr);
    case InstrKind::Mutate:
    case InstrKind::AddGrads:
      return true;
    case InstrKind::NodeStart:
    case InstrKind::Hook:
    case InstrKind::CallNode:
    case InstrKind::Accumulate:
    case InstrKind::Capture:
    case InstrKind::Release:
      return false;
  }
  return false;
}

class Waiting {
 public:
  explicit Waiting(const Graph& graph) : made_behind_(graph.values.size(), kNone) {
    uint32_t first_node = kNone;
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      const Instr& instr = graph.instrs[i];
      if (capture::is_boundary(instr)) first_node = kNone;
      if (instr.kind == InstrKind::NodeStart && first_node == kNone) first_node = i;
      first_nodes_.push_back(first_node);
      for (const ValueId value : instr.outputs) {
        if (value.defined()) made_behind_[value.index] = first_node;
      }
    }
  }

  /// Whether anybody could ask for what waits at that node.
  bool is_needed(ValueId value, uint32_t node_start) const {
    return made_behind_[value.index] == kNone || made_behind_[value.index] != first_nodes_[node_start];
  }

 private:
  std::vector<uint32_t> first_nodes_;  // by instr: the first node of its segment, up to it
  std::vector<uint32_t> made_behind_;  // by value: the same for its maker
};

}  // namespace

Rewrite dead_code(const Graph& graph) {
  const Waiting waiting(graph);
  Rewrite rewrite;
  std::vector<bool> is_read(graph.values.size());
  for (auto i = static_cast<uint32_t>(graph.instrs.size()); i-- > 0;) {
    const Instr& instr = graph.instrs[i];
    const bool is_needed = !may_go(instr) || std::any_of(instr.outputs.begin(), instr.outputs.end(),
                                                         [&](ValueId value) { return value.defined() && is_read[value.index]; });
    if (!is_needed) {
      rewrite.removed.insert(i);
      ++rewrite.reasons["read by nobody"];
      for (const ValueId value : instr.outputs) {
        if (value.defined()) rewrite.replaced[value.index] = {};
      }
      continue;
    }
    capture::for_each_use(instr, [&](ValueId value) {
      if (!value.defined()) return;
      if (instr.kind != InstrKind::NodeStart || waiting.is_needed(value, i)) is_read[value.index] = true;
    });
  }
  return rewrite;
}

}  // namespace hindcast::codegen
