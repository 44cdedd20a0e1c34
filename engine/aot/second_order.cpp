#include "engine/aot/second_order.h"

#include "codegen/partition/joint_uses.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace hindcast::engine {

using capture::ValueId;
using codegen::JointUses;

namespace {

// By value: a differentiable one that depends on a primal that needs a gradient.
std::vector<bool> values_with_history(const JointUses& uses, const std::vector<uint32_t>& with_gradients) {
  std::vector<bool> has_history(uses.graph().values.size());
  for (const uint32_t primal : with_gradients) {
    const ValueId value = uses.joint().primal_values()[primal];
    if (value.defined()) has_history[value.index] = true;
  }
  for (uint32_t i = 0; i < uses.joint().forward_end; ++i) {
    bool depends = false;
    capture::for_each_use(uses.instr(i), [&](ValueId value) { depends = depends || (value.defined() && has_history[value.index]); });
    for (const ValueId value : uses.instr(i).outputs) {
      if (value.defined())
        has_history[value.index] = depends && torch::autograd::isDifferentiableType(uses.graph().values[value.index].dtype);
    }
  }
  return has_history;
}

bool draws(const capture::Instr& instr) { return instr.op && instr.op->hasTag(at::Tag::nondeterministic_seeded); }

}  // namespace

SecondOrder second_order_of(const capture::Joint& joint, const std::vector<ValueId>& saved_values, const std::vector<Saved>& saved,
                            const std::vector<uint32_t>& with_gradients) {
  const JointUses uses(joint);
  const std::vector<bool> has_history = values_with_history(uses, with_gradients);
  SecondOrder order;
  std::vector<bool> is_there(uses.graph().values.size()), is_read(is_there.size());  // by value
  std::vector<ValueId> open;
  for (uint32_t i = 0; i < saved.size(); ++i) {
    const ValueId value = saved_values[i];
    if (saved[i].from == Saved::From::Primal) continue;
    if (!has_history[value.index]) {
      is_there[value.index] = true;
      order.constants.push_back(i);
    } else if (saved[i].from == Saved::From::Forward) {
      order.saved.push_back(i);
      open.push_back(value);
    }
  }
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (!value.defined() || is_read[value.index] || is_there[value.index]) continue;
    is_read[value.index] = true;
    const uint32_t maker = uses.maker_of(value);
    if (maker == JointUses::kNone) continue;
    order.draws = order.draws || draws(uses.instr(maker));
    capture::for_each_use(uses.instr(maker), [&](ValueId read) { open.push_back(read); });
  }
  for (uint32_t number = 0; number < joint.primals; ++number) {
    const ValueId value = joint.primal_values()[number];
    if (!value.defined() || !is_read[value.index]) continue;
    const auto is_it = [&](const Saved& each) { return each.from == Saved::From::Primal && each.index == number; };
    const auto found = std::find_if(saved.begin(), saved.end(), is_it);
    const auto place = found == saved.end() ? std::nullopt : std::optional(static_cast<uint32_t>(found - saved.begin()));
    order.primals.push_back({number, place});
  }
  return order;
}

}  // namespace hindcast::engine
