// A gradient that an event only holds is needed if the rest of the program may be handed back to the stock engine. That can happen at the
// first holding event of a segment, where all values that the segment's kernels replace exist (codegen/fuse). A value that is computed
// after that point, and is not held beyond its segment, is not needed.

#include "codegen/passes/dead_code.h"

#include "codegen/passes/instr_key.h"
#include "base/index.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <vector>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

namespace {

// Whether the instr may be removed if its results are unused. A Mutate's write is not visible to others, unless it draws random numbers.
bool may_go(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::Op:
      return is_pure(instr);
    case InstrKind::Mutate:
      return !instr.op->hasTag(at::Tag::nondeterministic_seeded);
    case InstrKind::AddGrads:
      return true;
    case InstrKind::Event:
      return false;
  }
  return false;
}

class Waiting {
 public:
  explicit Waiting(const Graph& graph) : made_behind_(graph.values.size(), base::kNoIndex) {
    uint32_t first_wait = base::kNoIndex;
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      const Instr& instr = graph.instrs[i];
      if (capture::is_barrier(instr)) first_wait = base::kNoIndex;
      if (capture::waits(instr) && first_wait == base::kNoIndex) first_wait = i;
      first_waits_.push_back(first_wait);
      for (const ValueId value : instr.outputs) {
        if (value.defined()) made_behind_[value.index] = first_wait;
      }
    }
  }

  /// Whether a value that the event holds may be needed.
  bool is_needed(ValueId value, uint32_t event) const {
    return made_behind_[value.index] == base::kNoIndex || made_behind_[value.index] != first_waits_[event];
  }

 private:
  std::vector<uint32_t> first_waits_;  // by instr: the first holding event of its segment, up to the instr
  std::vector<uint32_t> made_behind_;  // by value: the same for the instr that makes it
};

}  // namespace

Rewrite dead_code(const Graph& graph) {
  const Waiting waiting(graph);
  Rewrite rewrite;
  std::vector<bool> is_read(graph.values.size());
  for (const ValueId value : graph.outputs) {
    if (value.defined()) is_read[value.index] = true;
  }
  for (const capture::UnbackedSize& size : graph.unbacked) is_read[size.value.index] = true;
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
      if (!capture::waits(instr) || waiting.is_needed(value, i)) is_read[value.index] = true;
    });
  }
  return rewrite;
}

}  // namespace hindcast::codegen
