#include "codegen/passes/uses.h"

#include <numeric>

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

namespace {

UseKind kind_of_inputs(const Instr& instr) {
  if (capture::computes(instr)) return UseKind::Read;
  switch (instr.use) {
    case capture::EventUse::Wait:
      return UseKind::Wait;
    case capture::EventUse::Keep:
      return UseKind::Keep;
    case capture::EventUse::Show:
      return UseKind::Show;
  }
  return UseKind::Show;
}

// A sum of two gradients is a ZeroTensor only if both are.
bool makes_zero_tensor(const Instr& instr, const std::vector<bool>& may_be) {
  const auto is = [&](ValueId value) { return value.defined() && may_be[value.index]; };
  if (instr.kind == InstrKind::AddGrads) return is(instr.inputs[0]) && is(instr.inputs[1]);
  if (instr.op && instr.op->operator_name().name == "aten::_efficientzerotensor") return true;
  bool found = false;
  capture::for_each_use(instr, [&](ValueId value) { found = found || is(value); });
  return found;
}

}  // namespace

Uses::Uses(const Graph& graph, const Rewrite& rewrite)
    : uses_(graph.values.size()),
      shares_with_(graph.values.size()),
      members_(graph.values.size()),
      is_computed_(graph.values.size()),
      may_be_zero_tensor_(graph.values.size()) {
  std::iota(shares_with_.begin(), shares_with_.end(), 0u);
  uint32_t segment = 0, accumulations = 0;
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    const Instr& instr = graph.instrs[i];
    segments_.push_back(segment);
    if (capture::is_barrier(instr)) ++segment;
    if (capture::keeps(instr)) ++accumulations;
    accumulations_.push_back(accumulations);
    if (rewrite.removed.contains(i)) continue;
    for (const Arg& arg : instr.args) {
      for (const ValueId value : arg.values) add(i, UseKind::Read, rewrite.replacement_of(value));
    }
    for (size_t k = 0; k < instr.inputs.size(); ++k) {
      const bool is_sum = instr.kind == InstrKind::AddGrads && k == 0;
      add(i, is_sum ? UseKind::Overwrite : kind_of_inputs(instr), rewrite.replacement_of(instr.inputs[k]));
    }
    add(i, UseKind::Overwrite, rewrite.replacement_of(instr.base));
    for (const ValueId output : instr.outputs) {
      if (!output.defined()) continue;
      is_computed_[output.index] = capture::computes(instr);
      may_be_zero_tensor_[output.index] = capture::computes(instr) && makes_zero_tensor(instr, may_be_zero_tensor_);
      if (!graph.values[output.index].is_view) continue;
      // The graph does not say which argument the view is of: assume all.
      for (const Arg& arg : instr.args) {
        for (const ValueId viewed : arg.values) {
          if (viewed.defined()) shares_with_[memory_of(output.index)] = memory_of(rewrite.replacement_of(viewed).index);
        }
      }
    }
  }
  const auto end = static_cast<uint32_t>(graph.instrs.size());
  for (const ValueId value : graph.outputs) add(end, UseKind::Show, rewrite.replacement_of(value));
  segments_.push_back(segment);
  accumulations_.push_back(accumulations);
  for (uint32_t value = 0; value < graph.values.size(); ++value) members_[memory_of(value)].push_back(value);
}

void Uses::add(uint32_t instr, UseKind kind, ValueId value) {
  if (value.defined()) uses_[value.index].push_back({instr, kind, value});
}

uint32_t Uses::memory_of(uint32_t value) const {
  while (shares_with_[value] != value) value = shares_with_[value];
  return value;
}

std::vector<Use> Uses::of_memory(ValueId value) const {
  std::vector<Use> all;
  for (const uint32_t member : members_[memory_of(value.index)]) all.insert(all.end(), uses_[member].begin(), uses_[member].end());
  return all;
}

}  // namespace hindcast::codegen
