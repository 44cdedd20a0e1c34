#include "codegen/partition/split.h"

#include "base/check.h"
#include "base/format.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::Joint;
using capture::Partitioned;
using capture::ValueId;

namespace {

class Splitter {
 public:
  Splitter(const JointUses& uses, const std::vector<ValueId>& saved) : uses_(uses), joint_(uses.joint()), graph_(uses.graph()) {
    is_saved_.resize(graph_.values.size());
    for (const ValueId value : saved) {
      if (!value.defined()) continue;
      if (value.index >= graph_.values.size()) {
        throw std::invalid_argument(
            base::format("hindcast: value {} is to be saved, the program has {} values", value.index, graph_.values.size()));
      }
      if (uses_.is_of_backward(value))
        throw std::invalid_argument(base::format("hindcast: value {} is to be saved, and depends on a tangent", value.index));
      is_saved_[value.index] = true;
    }
    for (const ValueId value : saved) {
      if (value.defined() && is_view_of_what_is_there(value)) is_saved_[value.index] = false;
    }
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      if (!uses_.is_held_in_forward(i)) continue;
      for (const ValueId value : graph_.instrs[i].outputs) {
        if (value.defined()) is_saved_[value.index] = true;
      }
    }
  }

  Partitioned run() {
    const auto is_given = [&](ValueId value) { return is_saved_[value.index]; };
    const std::vector<bool> backward = uses_.needed_for(joint_.gradient_values(), true, is_given);
    forget_what_comes_again(backward);
    Partitioned parts;
    parts.saved = what_is_read(backward);

    std::vector<ValueId> outputs(joint_.result_values().begin(), joint_.result_values().end());
    outputs.insert(outputs.end(), parts.saved.begin(), parts.saved.end());
    const std::vector<bool> forward = uses_.needed_for(outputs, false, [](ValueId) { return false; });
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < forward.size(); ++i) {
      HC_CHECK(!forward[i] || !uses_.runs_in_backward(i), "instr {} of the forward needs a tangent", i);
      if (forward[i]) order.push_back(i);
    }
    const auto forward_program = program({joint_.primal_values().begin(), joint_.primal_values().end()}, std::move(outputs), order);
    forward_program->unbacked = graph_.unbacked;
    forward_program->verify();
    parts.forward = forward_program;

    std::vector<ValueId> inputs = parts.saved;
    inputs.insert(inputs.end(), joint_.tangent_values().begin(), joint_.tangent_values().end());
    const auto backward_program =
        program(std::move(inputs), {joint_.gradient_values().begin(), joint_.gradient_values().end()}, in_time(backward));
    backward_program->verify();
    parts.backward = backward_program;
    return parts;
  }

 private:
  bool is_view_of_what_is_there(ValueId value) const {
    for (value = uses_.viewed_by(value); value.defined(); value = uses_.viewed_by(value)) {
      if (is_saved_[value.index] || uses_.is_primal(value)) return true;
    }
    return false;
  }

  // Does not save the outputs of an instr that is recomputed anyway, for another of its outputs.
  void forget_what_comes_again(const std::vector<bool>& backward) {
    for (uint32_t i = 0; i < backward.size(); ++i) {
      if (!backward[i] || uses_.runs_in_backward(i)) continue;
      for (const ValueId value : graph_.instrs[i].outputs) {
        if (value.defined()) is_saved_[value.index] = false;
      }
    }
  }

  // The forward's values that the backward reads, in the joint's order.
  std::vector<ValueId> what_is_read(const std::vector<bool>& backward) const {
    std::vector<bool> is_read(graph_.values.size());
    const auto read = [&](ValueId value) {
      if (!value.defined() || uses_.is_of_backward(value)) return;
      if (uses_.is_primal(value) || is_saved_[value.index]) is_read[value.index] = true;
    };
    for (uint32_t i = 0; i < backward.size(); ++i) {
      if (backward[i]) capture::for_each_use(graph_.instrs[i], read);
    }
    for (const ValueId value : joint_.gradient_values()) read(value);
    std::vector<ValueId> values;
    const auto add = [&](ValueId value) {
      if (value.defined() && is_read[value.index]) values.push_back(value);
    };
    for (const ValueId value : joint_.primal_values()) add(value);
    for (const Instr& instr : graph_.instrs) std::for_each(instr.outputs.begin(), instr.outputs.end(), add);
    return values;
  }

  // The backward's instrs: those that need a tangent, in the joint's order, each preceded by what is recomputed for it.
  std::vector<uint32_t> in_time(std::vector<bool> needed) const {
    std::vector<uint32_t> order, open, again;
    const auto need = [&](ValueId value) {
      if (!value.defined() || is_saved_[value.index]) return;
      const uint32_t maker = uses_.maker_of(value);
      if (maker == JointUses::kNone || !needed[maker] || uses_.runs_in_backward(maker)) return;
      needed[maker] = false;
      open.push_back(maker);
      again.push_back(maker);
    };
    const auto add_again = [&] {
      while (!open.empty()) {
        const uint32_t i = open.back();
        open.pop_back();
        capture::for_each_use(graph_.instrs[i], need);
      }
      std::sort(again.begin(), again.end());
      order.insert(order.end(), again.begin(), again.end());
      again.clear();
    };
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      if (!needed[i] || !uses_.runs_in_backward(i)) continue;
      capture::for_each_use(graph_.instrs[i], need);
      add_again();
      order.push_back(i);
    }
    for (const ValueId value : joint_.gradient_values()) need(value);
    add_again();
    return order;
  }

  std::shared_ptr<Graph> program(std::vector<ValueId> inputs, std::vector<ValueId> outputs, const std::vector<uint32_t>& order) const {
    auto part = std::make_shared<Graph>();
    part->values = graph_.values;
    part->symbols = graph_.symbols;
    part->origins = graph_.origins;
    part->names = graph_.names;
    part->id = graph_.id;
    part->bitwise = graph_.bitwise;
    part->inputs = std::move(inputs);
    part->outputs = std::move(outputs);
    part->instrs.reserve(order.size());
    for (const uint32_t i : order) part->instrs.share(graph_.instrs, i);
    return part;
  }

  const JointUses& uses_;
  const Joint& joint_;
  const Graph& graph_;
  std::vector<bool> is_saved_;  // by value; includes values that the backward cannot compute
};

}  // namespace

Partitioned split(const JointUses& uses, const std::vector<ValueId>& saved) { return Splitter(uses, saved).run(); }
Partitioned split(const Joint& joint, const std::vector<ValueId>& saved) { return split(JointUses(joint), saved); }

std::shared_ptr<const Graph> backward_behind(const Joint& joint, const std::vector<ValueId>& saved) {
  const Partitioned parts = split(joint, saved);
  const auto has = [](const std::vector<ValueId>& list, ValueId value) { return std::find(list.begin(), list.end(), value) != list.end(); };
  for (const ValueId value : parts.saved) {
    if (!has(saved, value)) return nullptr;
  }
  auto backward = std::make_shared<Graph>(*parts.backward);
  backward->inputs.clear();
  for (const ValueId value : saved) backward->inputs.push_back(has(parts.saved, value) ? value : ValueId());
  backward->inputs.insert(backward->inputs.end(), joint.tangent_values().begin(), joint.tangent_values().end());
  backward->verify();
  return backward;
}

}  // namespace hindcast::codegen
