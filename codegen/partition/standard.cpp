#include "codegen/partition/standard.h"

#include "codegen/partition/split.h"

#include <vector>

namespace hindcast::codegen {

using capture::Joint;
using capture::Partitioned;
using capture::ValueId;

Partitioned standard(const JointUses& uses) {
  const Joint& joint = uses.joint();
  std::vector<bool> is_read(uses.graph().values.size());
  std::vector<ValueId> saved;
  const auto read = [&](ValueId value) {
    if (!value.defined() || is_read[value.index] || uses.is_of_backward(value)) return;
    const uint32_t maker = uses.maker_of(value);
    if (maker != JointUses::kNone && maker >= joint.forward_end) return;
    is_read[value.index] = true;
    saved.push_back(value);
  };
  for (uint32_t i = joint.forward_end; i < uses.graph().instrs.size(); ++i) capture::for_each_use(uses.instr(i), read);
  for (const ValueId value : joint.gradient_values()) read(value);
  return split(uses, saved);
}

Partitioned standard(const Joint& joint) { return standard(JointUses(joint)); }

}  // namespace hindcast::codegen
