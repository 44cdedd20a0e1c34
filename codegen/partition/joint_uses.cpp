#include "codegen/partition/joint_uses.h"

#include "capture/ops/op_facts.h"
#include "codegen/fuse/member.h"
#include "codegen/passes/instr_key.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <unordered_set>

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::OpFacts;
using capture::Value;
using capture::ValueId;

namespace {

bool writes_statistics(const Instr& instr) { return capture::facts_of(instr.op->operator_name()).has(OpFacts::Statistics); }

int64_t bytes_of_value(const Graph& graph, const Value& value) {
  return !value.defined || value.dtype == at::ScalarType::Undefined ? 0 : bytes_of(graph, value);
}

}  // namespace

bool compares_tensors(const capture::Instr& instr) {
  if (!instr.op) return false;
  const c10::OperatorName& name = instr.op->operator_name();
  return (name.overload_name == "Tensor" && capture::facts_of(name).has(OpFacts::Compares)) || name.name == "hindcast::formula";
}

bool stays_where_it_is(const Instr& instr) {
  const auto is_defined = [](ValueId value) { return value.defined(); };
  if (std::none_of(instr.outputs.begin(), instr.outputs.end(), is_defined)) return true;
  switch (instr.kind) {
    case InstrKind::Op:
      return !is_pure(instr) || writes_statistics(instr);
    case InstrKind::Mutate:  // writes only to its own copy
      return !instr.op->operator_name().name.starts_with("aten::") || instr.op->hasTag(at::Tag::nondeterministic_seeded) ||
             writes_statistics(instr);
    case InstrKind::AddGrads:
      return false;
    case InstrKind::Event:
      return true;
  }
  return true;
}

JointUses::JointUses(const Joint& joint)
    : joint_(joint), uses_(*joint.graph), value_needs_backward_(joint.graph->values.size()), viewed_(joint.graph->values.size()) {
  for (const Value& value : graph().values) bytes_.push_back(bytes_of_value(graph(), value));
  for (uint32_t i = 0; i < graph().inputs.size(); ++i) {
    const ValueId value = graph().inputs[i];
    if (!value.defined()) continue;
    value_needs_backward_[value.index] = i >= joint.primals;
  }
  for (uint32_t i = 0; i < graph().instrs.size(); ++i) {
    const Instr& instr = this->instr(i);
    stays_.push_back(stays_where_it_is(instr) || graph().binds_sizes(instr));
    bool needs_backward = stays_.back() && i >= joint.forward_end;
    capture::for_each_use(instr, [&](ValueId value) {
      if (value.defined()) needs_backward = needs_backward || value_needs_backward_[value.index];
    });
    instr_needs_backward_.push_back(needs_backward);
    const ValueId viewed = stays_.back() ? ValueId() : find_viewed(instr);
    for (const ValueId output : instr.outputs) {
      if (!output.defined()) continue;
      value_needs_backward_[output.index] = needs_backward;
      viewed_[output.index] = viewed;
    }
  }
}

// The graph does not say which argument a view is of. For ops with one tensor argument it is clear.
ValueId JointUses::find_viewed(const Instr& instr) const {
  if (instr.kind != InstrKind::Op) return {};
  for (const ValueId output : instr.outputs) {
    if (output.defined() && !graph().values[output.index].is_view) return {};
  }
  ValueId viewed;
  for (const Arg& arg : instr.args) {
    for (const ValueId value : arg.values) {
      if (!value.defined() || value == viewed) continue;
      if (viewed.defined()) return {};
      viewed = value;
    }
  }
  return viewed;
}

std::vector<bool> find_compared(const JointUses& uses) {
  std::vector<bool> is_compared(uses.graph().values.size());
  for (const Instr& instr : uses.graph().instrs) {
    if (!compares_tensors(instr)) continue;
    capture::for_each_use(instr, [&](ValueId value) {
      if (value.defined()) is_compared[uses.memory_of(value).index] = true;
    });
  }
  return is_compared;
}

ValueId JointUses::memory_of(ValueId value) const {
  while (viewed_[value.index].defined()) value = viewed_[value.index];
  return value;
}

int64_t saved_bytes(const JointUses& uses, std::span<const ValueId> saved) {
  std::unordered_set<uint32_t> seen;
  int64_t bytes = 0;
  for (const ValueId value : saved) {
    if (!value.defined()) continue;
    const ValueId memory = uses.memory_of(value);
    if (!uses.is_primal(memory) && seen.insert(memory.index).second) bytes += uses.bytes_of(memory);
  }
  return bytes;
}

}  // namespace hindcast::codegen
