#include "engine/plan/backward_plan.h"

#include "hindcast/detail/footprint.h"

#include <algorithm>
#include <unordered_map>

namespace hindcast::engine {

using capture::BackwardGraph;
using capture::EventKind;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;
using codegen::kNoSlot;
using codegen::Schedule;

namespace {

// Extends the lifetime of gradients that wait for later nodes up to each place where the run may stop, because there they are needed even
// if no later step reads them (a kernel may read the value that a waiting gradient is a view of instead).
class Waiting {
 public:
  explicit Waiting(const BackwardGraph& graph) : graph_(graph) {}

  /// The run may stop at `place`, after the first `events` buffer events.
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
  /// For each slot that waited, the last place where the run may stop while it waits.
  const std::unordered_map<uint32_t, uint32_t>& finish() {
    for (const auto& [input, since] : waiting_) end(since);
    return last_places_;
  }

 private:
  struct Since {
    uint32_t slot, place;
  };
  void end(const Since& since) {
    if (last_stop_ == kNoSlot || since.place > last_stop_) return;  // it did not wait at any stop
    uint32_t& last = last_places_.try_emplace(since.slot, last_stop_).first->second;
    last = std::max(last, last_stop_);
  }

  const BackwardGraph& graph_;
  std::unordered_map<uint32_t, Since> waiting_;  // by node input
  std::unordered_map<uint32_t, uint32_t> last_places_;
  uint32_t event_ = 0, last_stop_ = kNoSlot;
};

// True if the run may stop there and leave the rest to the nodes themselves, since user code may have changed them. A plan as captured
// checks each node separately.
bool may_be_left_at(const BackwardGraph& graph, const Instr& instr, bool is_as_captured) {
  if (instr.kind != InstrKind::Event) return false;
  if (instr.order == capture::EventOrder::Barrier || instr.order == capture::EventOrder::Leave) return true;
  return is_as_captured && graph.event_of(instr).kind == EventKind::NodeStart;
}

}  // namespace

BackwardPlan::BackwardPlan(const std::shared_ptr<const BackwardGraph>& graph) : BackwardPlan(graph, Schedule::unfused(*graph), nullptr) {}

BackwardPlan::BackwardPlan(const std::shared_ptr<const BackwardGraph>& graph, const Schedule& schedule,
                           const MakeGroupCall& make_group_call)
    : Plan(graph, schedule, make_group_call, [&](const Plan& plan) {
        Waiting waiting(*graph);
        for (uint32_t place = 0; place < schedule.items.size(); ++place) {
          const Schedule::Item item = schedule.items[place];
          if (item.is_group || !may_be_left_at(*graph, graph->instrs[item.index], plan.is_as_captured())) continue;
          waiting.stop(place, graph->event_of(graph->instrs[item.index]).buffer_events, [&](ValueId value) { return plan.slot_of(value); });
        }
        std::vector<Hold> holds;
        for (const auto& [slot, place] : waiting.finish()) holds.push_back({slot, place});
        return holds;
      }) {
  add_events();
  events_.shrink_to_fit();
  find_what_flows_on(schedule);
}

void BackwardPlan::add_events() {
  std::unordered_map<uint32_t, std::vector<uint32_t>> waited_last;  // slots, by place: the step's index
  for (const Hold& hold : holds()) waited_last[hold.place].push_back(hold.slot);
  std::unordered_map<uint32_t, uint32_t> leaves;  // leaf numbers, by instr
  size_t first = 0;                               // the first of consecutive Release events
  for (uint32_t place = 0; place < steps().size(); ++place) {
    const codegen::Step& step = steps()[place];
    for (uint32_t i = 0; i < step.leaves.size(); ++i) leaves[step.leaves[i].instr] = step.first_leaf + i;
    if (step.kind != InstrKind::Event) continue;
    const Instr& instr = graph().instrs[step.instr];
    const capture::Event& event = backward().event_of(instr);
    EventStep& planned = events_.emplace_back();
    planned.kind = event.kind;
    planned.stage = event.stage;
    planned.result = event.result;
    planned.kept_inputs = event.kept_inputs;
    if (const auto leaf = leaves.find(step.instr); leaf != leaves.end()) planned.leaf = leaf->second;
    planned.end_call = is_as_captured() ? step.origin + 1 : backward().end_of_recheck(step.instr);
    if (const auto slots = waited_last.find(place); slots != waited_last.end()) waited_last_[step.event] = std::move(slots->second);
    if (event.kind == EventKind::Accumulate) accumulating_calls_.push_back(step.origin);
    if (event.kind != EventKind::Release) continue;
    const bool goes_on =
        place != 0 && steps()[place - 1].kind == InstrKind::Event && events_[events_.size() - 2].kind == EventKind::Release;
    if (!goes_on) {
      first = events_.size() - 1;
      events_[first].first_release = static_cast<uint32_t>(released_.size());
    }
    ++events_[first].releases;
    released_.push_back(step.origin);
  }
}

// Saved tensors are released with their node. The few that are read elsewhere, and those of a node that is a program, are released at
// their last use.
void BackwardPlan::find_what_flows_on(const codegen::Schedule& schedule) {
  flows_on_.assign(first_resume_slot(), false);
  const std::vector<uint32_t>& programs = backward().programs;
  uint32_t furthest = 0;
  for (const codegen::Schedule::Item item : schedule.items) {
    if (item.is_group) {
      for (const ValueId input : inputs_of(schedule.groups[item.index])) {
        if (slot_of(input) < first_resume_slot()) flows_on_[slot_of(input)] = true;
      }
      continue;
    }
    const Instr& instr = graph().instrs[item.index];
    if (capture::waits(instr)) continue;
    const bool moved = item.index < furthest;
    furthest = std::max(furthest, item.index);
    capture::for_each_use(instr, [&](ValueId value) {
      const uint32_t slot = slot_of(value);
      if (slot >= first_resume_slot()) return;
      if (moved || std::binary_search(programs.begin(), programs.end(), instr.origin)) flows_on_[slot] = true;
      const bool formula = instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate;
      if (instr.origin != backward().owners[slot] || !formula) flows_on_[slot] = true;
    });
  }
}

std::span<const uint32_t> BackwardPlan::waited_last(const codegen::Step& step) const {
  if (waited_last_.empty()) return {};
  const auto found = waited_last_.find(step.event);
  return found == waited_last_.end() ? std::span<const uint32_t>() : found->second;
}

size_t BackwardPlan::footprint() const {
  using base::footprint;
  size_t bytes = Plan::footprint() + sizeof(*this) - sizeof(Plan) + footprint(events_) + footprint(released_) +
                 footprint(accumulating_calls_) + flows_on_.capacity() / 8;
  constexpr size_t kEntry = 64;
  for (const auto& [event, slots] : waited_last_) bytes += kEntry + footprint(slots);
  return bytes;
}

std::shared_ptr<const codegen::Plan> plan_of(const std::shared_ptr<const capture::Graph>& graph) {
  if (const auto backward = std::dynamic_pointer_cast<const BackwardGraph>(graph)) return std::make_shared<const BackwardPlan>(backward);
  return std::make_shared<const codegen::Plan>(graph);
}

std::shared_ptr<const codegen::Plan> plan_of(const std::shared_ptr<const capture::Graph>& graph, const Schedule& schedule,
                                             const codegen::Plan::MakeGroupCall& make_group_call) {
  if (const auto backward = std::dynamic_pointer_cast<const BackwardGraph>(graph))
    return std::make_shared<const BackwardPlan>(backward, schedule, make_group_call);
  return std::make_shared<const codegen::Plan>(graph, schedule, make_group_call);
}

}  // namespace hindcast::engine
