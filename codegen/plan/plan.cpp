#include "codegen/plan/plan.h"

#include "codegen/plan/op_call.h"
#include "base/footprint.h"

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
  // Kernels walk sizes of values; a plan with kernels must find in a call's Env what the plan without them evaluated.
  for (const capture::Value& value : graph.values) needed.insert(needed.end(), value.sizes.begin(), value.sizes.end());
  return needed;
}

// A slot that is used twice in one step is given away at its last mention only.
void give_away_once(Step& step) {
  std::vector<SlotUse*> uses;
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
}

// Where the backward may be left, gradients that wait for nodes to come are in use, whoever reads them there: a kernel may read
// what another shape of one is made of.
class Waiting {
 public:
  explicit Waiting(const capture::Graph& graph) : graph_(graph) {}

  /// The backward may be left at `place`, before `events` happen.
  template <class SlotOf>
  void stop(uint32_t place, uint32_t events, SlotOf slot_of) {
    for (; event_ < events; ++event_) {
      const auto& [input, value] = graph_.buffer_events[event_];
      if (const auto former = waiting_.find(input); former != waiting_.end()) end(former->second);
      waiting_.erase(input);
      if (const uint32_t slot = slot_of(value); slot != kNoSlot) waiting_[input] = {slot, place};
    }
    last_stop_ = place;
  }
  /// Last places by slot, of those that have waited.
  const std::unordered_map<uint32_t, uint32_t>& finish() {
    for (const auto& [input, since] : waiting_) end(since);
    return last_places_;
  }

 private:
  struct Since {
    uint32_t slot, place;
  };
  void end(const Since& since) {
    if (last_stop_ == kNoSlot || since.place > last_stop_) return;  // it came and went between two stops
    uint32_t& last = last_places_.try_emplace(since.slot, last_stop_).first->second;
    last = std::max(last, last_stop_);
  }

  const capture::Graph& graph_;
  std::unordered_map<uint32_t, Since> waiting_;  // by node input
  std::unordered_map<uint32_t, uint32_t> last_places_;
  uint32_t event_ = 0, last_stop_ = kNoSlot;
};

}  // namespace

Plan::Plan(std::shared_ptr<const capture::Graph> graph) : Plan(graph, Schedule::unfused(*graph), nullptr) {
  is_as_captured_ = true;
  for (const capture::Segment& segment : graph_->segments()) {
    PlannedSegment& planned = segments_.emplace_back();
    planned.first_instr = segment.first;
    planned.last_instr = segment.last;
    for (const ValueId value : segment.inputs) planned.inputs.push_back(slot_of(value));
    for (const ValueId value : segment.outputs) planned.outputs.push_back(slot_of(value));
  }
}

Plan::Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeGroupCall& make_group_call)
    : graph_(std::move(graph)), evaluator_(*graph_->symbols, needed_expressions(*graph_)) {
  assign_slots();
  add_steps(schedule, make_group_call);
  find_what_flows_on(schedule);
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

StepArg Plan::plan_arg(const Arg& arg, uint32_t place, const std::vector<uint32_t>& last_use) {
  StepArg planned{arg.kind, arg.constant, {}, arg.exprs};
  for (const ValueId value : arg.values) {
    const uint32_t slot = slot_of(value);
    planned.slots.push_back({slot, slot != kNoSlot && last_use[slot] == place});
  }
  return planned;
}

void Plan::add_steps(const Schedule& schedule, const MakeGroupCall& make_group_call) {
  const auto& instrs = graph_->instrs;
  has_boundaries_ = std::any_of(instrs.begin(), instrs.end(), [](const Instr& instr) { return capture::is_boundary(instr); });
  std::vector<uint32_t> last_use(slot_count_, kNoSlot);
  Waiting waiting(*graph_);
  for (uint32_t place = 0; place < schedule.items.size(); ++place) {
    const Schedule::Item item = schedule.items[place];
    const auto use = [&](ValueId value) {
      if (value.defined()) last_use[slot_of(value)] = place;
    };
    if (item.is_group) {
      const auto inputs = inputs_of(schedule.groups[item.index]);
      std::for_each(inputs.begin(), inputs.end(), use);
    } else {
      for_each_use(instrs[item.index], use);
    }
    // A gradient that waits for a node is in use until then.
    if (Schedule::may_be_left_at(*graph_, item))
      waiting.stop(place, instrs[item.index].buffer_events, [&](ValueId value) { return slot_of(value); });
  }
  std::unordered_map<uint32_t, std::vector<uint32_t>> waited_last;  // slots, by place
  for (const auto& [slot, place] : waiting.finish()) {
    if (last_use[slot] != kNoSlot && last_use[slot] >= place) continue;
    last_use[slot] = place;
    waited_last[place].push_back(slot);
  }
  steps_.reserve(schedule.items.size());
  for (uint32_t place = 0; place < schedule.items.size(); ++place) {
    const Schedule::Item item = schedule.items[place];
    if (item.is_group) {
      add_step(schedule.groups[item.index], place, last_use, make_group_call(item.index));
      continue;
    }
    add_step(item.index, place, last_use);
    steps_.back().end_call = item.end_call;
    if (const auto slots = waited_last.find(place); slots != waited_last.end()) steps_.back().waited_last = slots->second;
    if (instrs[item.index].kind == InstrKind::Accumulate) accumulating_calls_.push_back(instrs[item.index].call);
  }
}

void Plan::add_step(const Group& group, uint32_t place, const std::vector<uint32_t>& last_use, std::unique_ptr<const OpCall> call) {
  Step& step = steps_.emplace_back();
  step.kind = InstrKind::Op;
  step.instr = group.members.back();
  step.call = graph_->instrs[step.instr].call;
  for (const ValueId input : inputs_of(group)) step.inputs.push_back({slot_of(input), last_use[slot_of(input)] == place});
  for (const ValueId result : results_of(group)) step.outputs.push_back(slot_of(result));
  step.first_leaf = leaf_count_;
  for (const Group::Leaf& leaf : group.leaves) {
    step.leaves.push_back({graph_->instrs[leaf.instr].call, leaf.takes_result});
    leaf_numbers_.emplace(leaf.instr, leaf_count_++);
  }
  give_away_once(step);
  step.call_op = std::move(call);
}

void Plan::add_step(uint32_t i, uint32_t place, const std::vector<uint32_t>& last_use) {
  const Instr& instr = graph_->instrs[i];
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

  for (const Arg& arg : instr.args) step.args.push_back(plan_arg(arg, place, last_use));
  for (const ValueId value : instr.inputs) {
    const uint32_t slot = slot_of(value);
    step.inputs.push_back({slot, slot != kNoSlot && last_use[slot] == place});
  }
  if (const auto leaf = leaf_numbers_.find(i); leaf != leaf_numbers_.end()) step.leaf = leaf->second;
  const uint32_t base = slot_of(instr.base);
  step.base = {base, base != kNoSlot && last_use[base] == place};
  give_away_once(step);
  for (const auto& view : instr.views) {
    PlannedView planned{view.op, {}, view.self_arg, view.output};
    for (const Arg& arg : view.args) planned.args.push_back({arg.kind, arg.constant, {}, arg.exprs});
    step.views.push_back(std::move(planned));
  }
  if (step.kind == InstrKind::Op || step.kind == InstrKind::Mutate) step.call_op = make_op_call(step);
}

// Saved tensors leave with their node; the few that are read elsewhere leave with their last use.
void Plan::find_what_flows_on(const Schedule& schedule) {
  flows_on_.assign(first_resume_slot_, false);
  std::vector<uint32_t> reader(first_resume_slot_, kNoSlot);
  uint32_t furthest = 0;
  for (const Schedule::Item item : schedule.items) {
    if (item.is_group) {
      for (const ValueId input : inputs_of(schedule.groups[item.index])) {
        if (slot_of(input) < first_resume_slot_) flows_on_[slot_of(input)] = true;
      }
      continue;
    }
    const Instr& instr = graph_->instrs[item.index];
    if (instr.kind == InstrKind::NodeStart) continue;
    const bool moved = item.index < furthest;
    furthest = std::max(furthest, item.index);
    for_each_use(instr, [&](ValueId value) {
      const uint32_t slot = slot_of(value);
      if (slot >= first_resume_slot_) return;
      if (moved) flows_on_[slot] = true;
      const bool formula = instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate;
      if (reader[slot] == kNoSlot) reader[slot] = instr.call;
      if (reader[slot] != instr.call || !formula) flows_on_[slot] = true;
    });
  }
}

size_t Plan::footprint() const {
  using base::footprint;
  using base::footprint_beyond;
  const auto of_args = [](const std::vector<StepArg>& args) {
    size_t bytes = footprint(args);
    for (const StepArg& arg : args) bytes += footprint_beyond<1>(arg.slots) + footprint_beyond<2>(arg.exprs);
    return bytes;
  };
  size_t bytes = sizeof(*this) + footprint(steps_) + footprint(segments_) + footprint(slots_) + footprint(accumulating_calls_) +
                 flows_on_.capacity() / 8 + evaluator_.footprint();
  for (const Step& step : steps_) {
    bytes += of_args(step.args) + footprint_beyond<2>(step.inputs) + footprint_beyond<2>(step.outputs) + footprint(step.views) +
             footprint(step.leaves) + footprint(step.waited_last) + (step.call_op ? step.call_op->footprint() : 0);
    for (const PlannedView& view : step.views) bytes += of_args(view.args);
  }
  for (const PlannedSegment& segment : segments_) bytes += footprint(segment.inputs) + footprint(segment.outputs);
  return bytes;
}

}  // namespace hindcast::codegen
