#include "codegen/partition/known_values.h"

#include "codegen/partition/joint_uses.h"
#include "codegen/passes/dead_code.h"
#include "codegen/passes/rewrite.h"

#include <algorithm>

namespace hindcast::codegen {

using capture::Joint;
using capture::Value;
using capture::ValueId;

namespace {

bool have_same_layout(const Value& a, const Value& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes.size() == b.sizes.size() && a.strides == b.strides && a.defined && b.defined;
}

}  // namespace

Joint with_known_values(const Joint& joint) {
  if (joint.known.empty()) return joint;
  const JointUses uses(joint);
  const auto& values = joint.graph->values;
  const std::vector<bool> is_compared = find_compared(uses);
  Rewrite reads;
  for (const auto& [computed, known] : joint.known) {
    if (uses.is_returned(computed) || is_compared[uses.memory_of(computed).index]) continue;
    if (!have_same_layout(values[computed.index], values[known.index])) continue;
    reads.replaced[computed.index] = known;
    // As an input, it has sizes of its own. They are equal, but only as expressions can kernels know that.
    const auto set_sizes = [&](ValueId value) {
      Value with_sizes = values[value.index];
      with_sizes.sizes = values[computed.index].sizes;
      reads.values.emplace(value.index, std::move(with_sizes));
    };
    set_sizes(known);
    const uint32_t copy = uses.maker_of(known);  // of an input that has another memory format
    if (copy != JointUses::kNone) set_sizes(uses.instr(copy).args.at(0).values.at(0));
  }
  if (reads.empty()) return joint;
  Joint made = joint;
  made.graph = rewritten(*joint.graph, reads);
  const Rewrite unread = dead_code(*made.graph);
  made.graph = rewritten(*made.graph, unread);
  made.forward_end -=
      static_cast<uint32_t>(std::count_if(unread.removed.begin(), unread.removed.end(), [&](uint32_t i) { return i < joint.forward_end; }));
  return made;
}

}  // namespace hindcast::codegen
