#include "codegen/plan.h"

#include "codegen/op_call.h"

#include <algorithm>

namespace hindcast::codegen {

using capture::Arg;
using capture::for_each_use;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

namespace {

std::vector<capture::ExprId> needed_expressions(const capture::Graph& graph) {
  std::vector<capture::ExprId> needed;
  const auto add = [&](const std::vector<Arg>& args) {
    for (const Arg& arg : args) needed.insert(needed.end(), arg.exprs.begin(), arg.exprs.end());
  };
  for (const Instr& instr : graph.instrs) {
    add(instr.args);
    for (const auto& view : instr.views) add(view.args);
    for (const auto& pattern : instr.expected) {
      if (pattern.expr) needed.push_back(*pattern.expr);
    }
  }
  return needed;
}

}  // namespace

Plan::Plan(std::shared_ptr<const capture::Graph> graph)
    : graph_(std::move(graph)), evaluator_(*graph_->symbols, needed_expressions(*graph_)) {
  assign_slots();
  add_steps();
}

// Collected tensors first, by their number; then the gradients at the start; then what the steps make.
void Plan::assign_slots() {
  slots_.assign(graph_->values.size(), kNoSlot);
  first_resume_slot_ = static_cast<uint32_t>(graph_->tensor_inputs.size());
  uint32_t next = 0;
  for (const ValueId value : graph_->tensor_inputs) {
    if (value.defined()) slots_[value.index] = next;
    ++next;
  }
  for (const ValueId value : graph_->resume_inputs) {
    if (value.defined()) slots_[value.index] = next;
    ++next;
  }
  for (const Instr& instr : graph_->instrs) {
    for_each_use(instr, [&](ValueId value) {
      if (value.defined() && slots_[value.index] == kNoSlot) slots_[value.index] = next++;
    });
  }
  slot_count_ = next;
}

StepArg Plan::plan_arg(const Arg& arg, uint32_t step, const std::vector<uint32_t>& last_use) {
  StepArg planned{arg.kind, arg.constant, {}, arg.exprs};
  for (const ValueId value : arg.values) {
    const uint32_t slot = slot_of(value);
    planned.slots.push_back({slot, slot != kNoSlot && last_use[slot] == step});
  }
  return planned;
}

void Plan::add_steps() {
  const auto& instrs = graph_->instrs;
  has_boundaries_ = std::any_of(instrs.begin(), instrs.end(), [](const Instr& instr) { return capture::is_boundary(instr); });
  std::vector<uint32_t> last_use(slot_count_, kNoSlot);
  // Once user code has run, nodes are looked at again before their turn: a gradient that waits for one is in use until then.
  const bool looks_again = has_boundaries_ || graph_->first_call != 0 || graph_->stage != capture::Stage::NodeStart;
  for (uint32_t i = 0; i < instrs.size(); ++i) {
    if (instrs[i].kind == InstrKind::NodeStart && !looks_again) continue;
    for_each_use(instrs[i], [&](ValueId value) {
      if (value.defined()) last_use[slot_of(value)] = i;
    });
  }
  for (uint32_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    if (instr.kind == InstrKind::NodeStart && !looks_again) continue;
    Step& step = steps_.emplace_back();
    step.kind = instr.kind;
    step.stage = instr.stage;
    step.call = instr.call;
    step.instr = i;
    step.op = instr.op;
    step.target_arg = instr.target_arg;
    step.result = instr.result;
    step.kept_inputs = instr.kept_inputs;
    step.sum_is_view = instr.kind == InstrKind::AddGrads && graph_->values[instr.inputs[0].index].is_view;
    for (const ValueId value : instr.outputs) {
      const uint32_t slot = slot_of(value);
      step.outputs.push_back(slot != kNoSlot && last_use[slot] != kNoSlot ? slot : kNoSlot);
    }

    // A slot that is used twice in one step is given away at its last mention only.
    std::vector<SlotUse*> uses;
    for (const Arg& arg : instr.args) step.args.push_back(plan_arg(arg, i, last_use));
    for (const ValueId value : instr.inputs) {
      const uint32_t slot = slot_of(value);
      step.inputs.push_back({slot, slot != kNoSlot && last_use[slot] == i});
    }
    const uint32_t base = slot_of(instr.base);
    step.base = {base, base != kNoSlot && last_use[base] == i};
    for (StepArg& arg : step.args) {
      for (SlotUse& use : arg.slots) uses.push_back(&use);
    }
    for (SlotUse& use : step.inputs) uses.push_back(&use);
    uses.push_back(&step.base);
    for (size_t a = 0; a < uses.size(); ++a) {
      for (size_t b = a + 1; b < uses.size() && uses[a]->last; ++b) {
        if (uses[a]->slot == uses[b]->slot) uses[a]->last = false;
      }
    }
    for (const auto& view : instr.views) {
      PlannedView planned{view.op, {}, view.self_arg, view.output};
      for (const Arg& arg : view.args) planned.args.push_back({arg.kind, arg.constant, {}, arg.exprs});
      step.views.push_back(std::move(planned));
    }
    if (step.kind == InstrKind::Op || step.kind == InstrKind::Mutate) step.call_op = make_op_call(step);
  }

  for (const capture::Segment& segment : graph_->segments()) {
    PlannedSegment& planned = segments_.emplace_back();
    planned.first_instr = segment.first;
    planned.last_instr = segment.last;
    for (const ValueId value : segment.inputs) planned.inputs.push_back(slot_of(value));
    for (const ValueId value : segment.outputs) planned.outputs.push_back(slot_of(value));
  }

  // Saved tensors leave with their node; the few that flow on unchanged leave with their last use.
  flows_on_.assign(first_resume_slot_, false);
  std::vector<uint32_t> reader(first_resume_slot_, kNoSlot);
  for (const Instr& instr : instrs) {
    if (instr.kind == InstrKind::NodeStart) continue;
    for_each_use(instr, [&](ValueId value) {
      const uint32_t slot = slot_of(value);
      if (slot >= first_resume_slot_) return;
      const bool formula = instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate;
      if (reader[slot] == kNoSlot) reader[slot] = instr.call;
      if (reader[slot] != instr.call || !formula) flows_on_[slot] = true;
    });
  }
}

}  // namespace hindcast::codegen
