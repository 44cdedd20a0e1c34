#include "codegen/plan/plan.h"

#include "base/check.h"
#include "capture/graph/users_op.h"
#include "codegen/plan/kept_fill.h"
#include "codegen/plan/op_call.h"
#include "codegen/plan/prepared_run.h"
#include "hindcast/detail/footprint.h"

#include <algorithm>

namespace hindcast::codegen {

using capture::Arg;
using capture::for_each_use;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

namespace {

// A slot that one step uses twice is moved out only at the last of these uses. A Mutate reads its base before its arguments.
void give_away_once(Step& step) {
  std::vector<SlotUse*> uses{&step.base};
  for (StepArg& arg : step.args) {
    for (SlotUse& use : arg.slots) uses.push_back(&use);
  }
  for (SlotUse& use : step.inputs) uses.push_back(&use);
  for (size_t a = 0; a < uses.size(); ++a) {
    for (size_t b = a + 1; b < uses.size() && uses[a]->last; ++b) {
      if (uses[a]->slot == uses[b]->slot) uses[a]->last = false;
    }
  }
}

}  // namespace

Plan::Plan(std::shared_ptr<const capture::Graph> graph) : Plan(graph, Schedule::unfused(*graph), nullptr) {}

Plan::Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeGroupCall& make_group_call)
    : Plan(std::move(graph), schedule, make_group_call, nullptr) {}

Plan::Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeGroupCall& make_group_call,
           const FindHolds& find_holds)
    : graph_(std::move(graph)),
      is_as_captured_(make_group_call == nullptr),
      evaluator_(*graph_->symbols, graph_->expressions()),
      prepared_runs_(std::make_unique<PreparedRuns>()) {
  assign_slots();
  add_steps(schedule, make_group_call, find_last_uses(schedule, find_holds));
  find_sizes_to_bind();
  if (!is_as_captured_) return;
  for (const capture::Segment& segment : graph_->segments()) {
    PlannedSegment& planned = segments_.emplace_back();
    planned.first_instr = segment.first;
    planned.last_instr = segment.last;
    for (const ValueId value : segment.inputs) planned.inputs.push_back(slot_of(value));
    for (const ValueId value : segment.outputs) planned.outputs.push_back(slot_of(value));
  }
}

Plan::~Plan() = default;

// The graph's inputs get the first slots, in order; then come the results of the steps.
void Plan::assign_slots() {
  slots_.assign(graph_->values.size(), kNoSlot);
  uint32_t next = 0;
  for (const ValueId value : graph_->inputs) {
    if (value.defined()) slots_[value.index] = next;
    ++next;
  }
  const auto assign = [&](ValueId value) {
    if (value.defined() && slots_[value.index] == kNoSlot) slots_[value.index] = next++;
  };
  for (const Instr& instr : graph_->instrs) for_each_use(instr, assign);
  std::for_each(graph_->outputs.begin(), graph_->outputs.end(), assign);
  for (const capture::UnbackedSize& size : graph_->unbacked) assign(size.value);
  slot_count_ = next;
}

void Plan::find_sizes_to_bind() {
  for (const capture::UnbackedSize& size : graph_->unbacked) {
    const auto makes = [&](const Step& step) {
      return std::find(step.outputs.begin(), step.outputs.end(), slot_of(size.value)) != step.outputs.end();
    };
    const auto step = static_cast<uint32_t>(std::find_if(steps_.begin(), steps_.end(), makes) - steps_.begin());
    HC_CHECK(step < steps_.size(), "no step makes value {}, which has an unbacked size", size.value.index);
    HC_CHECK(sizes_to_bind_.empty() || sizes_to_bind_.back().step <= step, "unbacked symbols are bound in another order than theirs");
    sizes_to_bind_.push_back({step, slot_of(size.value), size.dim});
  }
}

StepArg Plan::plan_arg(const Arg& arg, uint32_t place, const std::vector<uint32_t>& last_use) {
  StepArg planned{arg.kind, arg.constant, {}, arg.exprs};
  for (const ValueId value : arg.values) {
    const uint32_t slot = slot_of(value);
    planned.slots.push_back({slot, slot != kNoSlot && last_use[slot] == place});
  }
  return planned;
}

// By slot: the last position in the schedule that reads it; the end of the schedule for the graph's outputs.
std::vector<uint32_t> Plan::find_last_uses(const Schedule& schedule, const FindHolds& find_holds) {
  std::vector<uint32_t> last_use(slot_count_, kNoSlot);
  for (uint32_t place = 0; place < schedule.items.size(); ++place) {
    const Schedule::Item item = schedule.items[place];
    const auto use = [&](ValueId value) {
      if (value.defined()) last_use[slot_of(value)] = place;
    };
    if (item.is_group) {
      const auto inputs = inputs_of(schedule.groups[item.index]);
      std::for_each(inputs.begin(), inputs.end(), use);
    } else {
      for_each_use(graph_->instrs[item.index], use);
    }
  }
  for (const ValueId value : graph_->outputs) {
    if (value.defined()) last_use[slot_of(value)] = static_cast<uint32_t>(schedule.items.size());
  }
  for (const capture::UnbackedSize& size : graph_->unbacked) {
    uint32_t& last = last_use[slot_of(size.value)];
    if (last == kNoSlot) last = static_cast<uint32_t>(schedule.items.size());
  }
  if (find_holds) holds_ = find_holds(*this);
  std::erase_if(holds_, [&](const Hold& hold) { return last_use[hold.slot] != kNoSlot && last_use[hold.slot] >= hold.place; });
  for (const Hold& hold : holds_) last_use[hold.slot] = hold.place;
  return last_use;
}

void Plan::add_steps(const Schedule& schedule, const MakeGroupCall& make_group_call, const std::vector<uint32_t>& last_use) {
  const std::vector<bool> is_copied = find_views_to_be_copied(), is_shown = find_shown_views();
  const std::vector<bool> is_kept = is_as_captured_ ? std::vector<bool>(graph_->instrs.size()) : find_kept_fills(*graph_, schedule);
  steps_.reserve(schedule.items.size());
  for (uint32_t place = 0; place < schedule.items.size(); ++place) {
    const Schedule::Item item = schedule.items[place];
    if (item.is_group) {
      add_step(schedule.groups[item.index], place, last_use, make_group_call(item.index));
    } else {
      add_step(item.index, place, last_use, is_copied[item.index], is_shown[item.index]);
      Step& step = steps_.back();
      if (is_kept[item.index] && step.outputs[0] != kNoSlot)
        step.call_op = make_kept_fill(graph_->values[graph_->instrs[item.index].outputs[0].index], std::move(step.call_op));
    }
  }
}

void Plan::add_step(const Group& group, uint32_t place, const std::vector<uint32_t>& last_use, std::unique_ptr<const OpCall> call) {
  Step& step = steps_.emplace_back();
  step.kind = InstrKind::Op;
  step.instr = group.members.back();
  step.origin = graph_->instrs[step.instr].origin;
  for (const ValueId input : inputs_of(group)) step.inputs.push_back({slot_of(input), last_use[slot_of(input)] == place});
  for (const ValueId result : results_of(group)) step.outputs.push_back(slot_of(result));
  step.first_leaf = leaf_count_;
  for (const Group::Leaf& leaf : group.leaves) {
    step.leaves.push_back({leaf.instr, graph_->instrs[leaf.instr].origin, leaf.takes_result});
    ++leaf_count_;
  }
  give_away_once(step);
  step.call_op = std::move(call);
}

// A leaf takes over a gradient that has no other owner. If the gradient is a view of an input that is read later in captured order, the
// leaf has to copy it, as the stock engine does, even if kernels have read through the view earlier and no later reader is left. Otherwise
// the leaf would take the caller's memory.
std::vector<bool> Plan::find_views_to_be_copied() const {
  std::vector<bool> result(graph_->instrs.size());
  if (is_as_captured_) return result;  // later readers still own it
  std::vector<bool> is_of_input(graph_->values.size()), is_read_later(graph_->values.size());
  for (const ValueId input : graph_->inputs) {
    if (input.defined()) is_of_input[input.index] = true;
  }
  for (size_t i = 0; i < graph_->instrs.size(); ++i) {
    bool reads_one = false;
    capture::for_each_use(graph_->instrs[i],
                          [&](ValueId value) { reads_one = reads_one || (value.defined() && is_of_input[value.index]); });
    for (const ValueId output : graph_->instrs[i].outputs) {
      if (output.defined() && reads_one && graph_->values[output.index].is_view) is_of_input[output.index] = true;
    }
  }
  for (size_t i = graph_->instrs.size(); i-- > 0;) {
    const Instr& instr = graph_->instrs[i];
    if (capture::keeps(instr) && instr.inputs[0].defined()) {
      const uint32_t value = instr.inputs[0].index;
      result[i] = graph_->values[value].is_view && is_of_input[value] && is_read_later[value];
    }
    if (capture::waits(instr)) continue;
    capture::for_each_use(instr, [&](ValueId value) {
      if (value.defined()) is_read_later[value.index] = true;
    });
  }
  return result;
}

// By instr: whether it makes a view that user code sees as a gradient, or the base of such a view.
std::vector<bool> Plan::find_shown_views() const {
  std::vector<bool> result(graph_->instrs.size()), is_shown(graph_->values.size());
  for (size_t i = graph_->instrs.size(); i-- > 0;) {
    const Instr& instr = graph_->instrs[i];
    const auto show = [&](ValueId value) {
      if (value.defined()) is_shown[value.index] = true;
    };
    if (instr.kind == InstrKind::Event) {
      if (!capture::waits(instr)) for_each_use(instr, show);
      continue;
    }
    if (instr.kind != InstrKind::Op || instr.args.empty() || instr.args[0].kind != Arg::Kind::Value) continue;
    result[i] = std::any_of(instr.outputs.begin(), instr.outputs.end(), [&](ValueId output) {
      return output.defined() && is_shown[output.index] && graph_->values[output.index].is_view;
    });
    if (result[i]) show(instr.args[0].values[0]);
  }
  return result;
}

void Plan::add_step(uint32_t i, uint32_t place, const std::vector<uint32_t>& last_use, bool is_copied, bool is_shown) {
  const Instr& instr = graph_->instrs[i];
  Step& step = steps_.emplace_back();
  step.kind = instr.kind;
  step.instr = i;
  step.origin = instr.origin;
  if (instr.kind == InstrKind::Event) {
    step.event = event_count_++;
    has_barriers_ = has_barriers_ || capture::is_barrier(instr);
  }
  step.op = instr.op;
  step.target_arg = instr.target_arg;
  step.seen = instr.seen;
  step.shares_version = is_shown;
  step.sum_is_view = instr.kind == InstrKind::AddGrads && graph_->values[instr.inputs[0].index].is_view;
  for (const ValueId value : instr.outputs) {
    const uint32_t slot = slot_of(value);
    step.outputs.push_back(slot != kNoSlot && last_use[slot] != kNoSlot ? slot : kNoSlot);
  }

  for (const Arg& arg : instr.args) step.args.push_back(plan_arg(arg, place, last_use));
  for (const ValueId value : instr.inputs) {
    const uint32_t slot = slot_of(value);
    step.inputs.push_back({slot, slot != kNoSlot && last_use[slot] == place && !is_copied});
  }
  const uint32_t base = slot_of(instr.base);
  step.base = {base, base != kNoSlot && last_use[base] == place};
  give_away_once(step);
  for (const auto& view : instr.views) {
    PlannedView planned{view.op, {}, view.self_arg, view.output};
    for (const Arg& arg : view.args) planned.args.push_back({arg.kind, arg.constant, {}, arg.exprs});
    step.views.push_back(std::move(planned));
  }
  if (step.kind == InstrKind::Op || step.kind == InstrKind::Mutate)
    step.call_op = make_op_call(step, capture::users_results(*graph_, instr));
}

size_t Plan::footprint() const {
  using base::footprint;
  using base::footprint_beyond;
  const auto of_args = [](const std::vector<StepArg>& args) {
    size_t bytes = footprint(args);
    for (const StepArg& arg : args) bytes += footprint_beyond<1>(arg.slots) + footprint_beyond<2>(arg.exprs);
    return bytes;
  };
  size_t bytes = sizeof(*this) + footprint(steps_) + footprint(segments_) + footprint(sizes_to_bind_) + footprint(slots_) +
                 footprint(holds_) + evaluator_.footprint();
  for (const Step& step : steps_) {
    bytes += of_args(step.args) + footprint_beyond<2>(step.inputs) + footprint_beyond<2>(step.outputs) + footprint(step.views) +
             footprint(step.leaves) + (step.call_op ? step.call_op->footprint() : 0);
    for (const PlannedView& view : step.views) bytes += of_args(view.args);
  }
  for (const PlannedSegment& segment : segments_) bytes += footprint(segment.inputs) + footprint(segment.outputs);
  return bytes;
}

}  // namespace hindcast::codegen
