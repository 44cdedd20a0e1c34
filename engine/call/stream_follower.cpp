#include "engine/call/stream_follower.h"

#include "base/check.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hindcast::engine {

using codegen::kNoSlot;
using torch::autograd::Node;

void StreamFollower::follow(uint32_t instr) {
  const auto& instrs = plan_.graph().instrs;
  for (; next_instr_ <= instr; ++next_instr_) {
    if (plan_.backward().is(instrs[next_instr_], capture::EventKind::NodeStart)) enter_node(instrs[next_instr_]);
  }
}

void StreamFollower::add(const codegen::Step& step) {
  const auto& arrivals = plan_.backward().buffer_events;
  const capture::ValueId sum = plan_.graph().instrs[step.instr].outputs[0];
  uint32_t at = next_arrival_;
  while (at < arrivals.size() && !(arrivals[at].value == sum)) ++at;
  HC_CHECK(at < arrivals.size(), "a sum of gradients waits nowhere");
  give_gradients(at);
  ++next_arrival_;
  const uint32_t input = arrivals[at].input;
  at::Tensor waiting = codegen::take(slots_, step.inputs[0]);
  waiting = streams_->add(input, std::move(waiting), codegen::take(slots_, step.inputs[1]), step.sum_is_view, consumer_of(input));
  if (step.outputs[0] != kNoSlot) slots_[step.outputs[0]] = std::move(waiting);
}

Node& StreamFollower::consumer_of(uint32_t input) const {
  const auto behind = std::upper_bound(collected_.calls.begin(), collected_.calls.end(), input,
                                       [](uint32_t one, const capture::NodeCall& call) { return one < call.first_input; });
  return *std::prev(behind)->node;
}

// Hands over the gradients that the node just finished has left at other nodes' inputs.
void StreamFollower::give_gradients(uint32_t end) {
  for (; next_arrival_ < end; ++next_arrival_) {
    const auto& [input, value] = plan_.backward().buffer_events[next_arrival_];
    const uint32_t slot = plan_.slot_of(value);
    if (slot != kNoSlot && slots_[slot].defined()) streams_->put(input, slots_[slot], consumer_of(input));
  }
}

void StreamFollower::enter_node(const capture::Instr& start) {
  give_gradients(plan_.backward().event_of(start).buffer_events);
  const capture::NodeCall& call = collected_.calls[start.origin];
  streams_->enter(call.node->stream());
  for (uint32_t i = 0; i < start.inputs.size(); ++i) {
    const uint32_t slot = plan_.slot_of(start.inputs[i]);
    if (slot != kNoSlot) streams_->wait(call.first_input + i, slots_[slot]);
  }
}

}  // namespace hindcast::engine
