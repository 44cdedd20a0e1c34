#include "engine/aot/second_order.h"

#include "capture/graph/unsafe_views.h"
#include "capture/ops/op_facts.h"
#include "codegen/partition/joint_uses.h"
#include "codegen/partition/some_tangents.h"
#include "engine/aot/without_statistics.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace hindcast::engine {

using capture::ValueId;
using codegen::JointUses;

namespace {

// Whether the results are constants for autograd, though the instr may read a tensor with a history.
bool makes_constants(const capture::Instr& instr) {
  if (!instr.op) return false;
  const capture::OpFacts& facts = capture::facts_of(instr.op->operator_name());
  return facts.has(capture::OpFacts::Fill) || facts.has(capture::OpFacts::Constant);
}

// By value: true if it is differentiable and depends on a primal that needs a gradient.
std::vector<bool> values_with_history(const JointUses& uses, const std::vector<uint32_t>& with_gradients) {
  std::vector<bool> has_history(uses.graph().values.size());
  for (const uint32_t primal : with_gradients) {
    const ValueId value = uses.joint().primal_values()[primal];
    if (value.defined()) has_history[value.index] = true;
  }
  const auto& origins = uses.graph().origins;
  for (uint32_t i = 0; i < uses.joint().forward_end; ++i) {
    const capture::Instr& instr = uses.instr(i);
    const bool without_gradients = !origins.empty() && origins[instr.origin] == capture::Graph::kWithoutGradients;
    bool depends = false;
    capture::for_each_use(instr, [&](ValueId value) {
      // A write without gradients leaves its target the history that it has.
      if (value.defined() && (!without_gradients || value == instr.base)) depends = depends || has_history[value.index];
    });
    depends = depends && !makes_constants(instr);
    for (const ValueId value : instr.outputs) {
      if (value.defined())
        has_history[value.index] = depends && torch::autograd::isDifferentiableType(uses.graph().values[value.index].dtype);
    }
  }
  return has_history;
}

// Whether a recomputed write through these views is in the history that stock's write is in: that of the views alone. Nothing may read the
// whole after the write, since there the histories differ.
bool can_recompute_views(const JointUses& uses, const capture::Instr& write) {
  if (std::all_of(write.views.begin(), write.views.end(), capture::is_view_for_autograd)) return true;
  const auto is_unsafe = [](const capture::ViewStep& step) { return !capture::is_view_for_autograd(step); };
  const capture::ViewStep& first = write.views.front();
  if (!capture::has_tracked_view(first) || std::count_if(write.views.begin(), write.views.end(), is_unsafe) != 1) return false;
  const auto users = uses.users_of(write.outputs[0]);
  return !uses.is_returned(write.outputs[0]) && std::all_of(users.begin(), users.end(), [&](uint32_t i) {
    const capture::Instr& user = uses.instr(i);
    if (user.kind == capture::InstrKind::Mutate)
      return user.base == write.outputs[0] && !user.views.empty() && user.views.front().op == first.op;
    return user.kind == capture::InstrKind::Op && user.op == first.op;
  });
}

// Why the instr's results must not be recomputed; nullptr if they may be.
const char* why_not_recomputed(const JointUses& uses, const capture::Instr& instr) {
  if (!instr.op) return nullptr;
  if (!can_recompute_views(uses, instr))
    return "it writes in place to the result of an operator like unsafe_chunk, and reads the tensor that it was taken of";
  if (instr.op->hasTag(at::Tag::nondeterministic_seeded)) return "it draws random numbers";
  // Recomputed vectors would be combined with results of the forward, whose rounding may have led to other signs.
  const bool has_free_signs = capture::facts_of(instr.op->operator_name()).has(capture::OpFacts::FreeSigns);
  return has_free_signs ? "it computes singular vectors or eigenvectors, whose signs depend on rounding" : nullptr;
}

// By value: true for primals and for values of the forward.
std::vector<bool> values_of_forward(const JointUses& uses) {
  std::vector<bool> is_of_forward(uses.graph().values.size());
  for (const ValueId primal : uses.joint().primal_values()) {
    if (primal.defined()) is_of_forward[primal.index] = true;
  }
  for (uint32_t i = 0; i < uses.joint().forward_end; ++i) {
    for (const ValueId value : uses.instr(i).outputs) is_of_forward[value.index] = true;
  }
  return is_of_forward;
}

// Values that are used without recomputation: results, and values without an autograd history. A result that is
// compared with recomputed values is recomputed too, so that both round the same way.
std::vector<SecondOrder::Given> find_given(const JointUses& uses, const std::vector<ValueId>& saved_values, const std::vector<Saved>& saved,
                                           const std::vector<uint32_t>& with_gradients, bool recomputes_results) {
  const std::vector<bool> has_history = values_with_history(uses, with_gradients), is_of_forward = values_of_forward(uses);
  const std::vector<bool> is_compared = codegen::find_compared(uses);
  std::vector<SecondOrder::Given> given;
  for (uint32_t i = 0; i < saved.size(); ++i) {
    const uint32_t value = saved_values[i].index;
    // The value was added by a pass over the program for first derivatives. Here its number may belong to a value of the backward.
    if (value >= is_of_forward.size() || !is_of_forward[value]) continue;
    const bool is_result = saved[i].from == Saved::From::Result && !is_compared[uses.memory_of({value}).index];
    const bool may_be_result = is_result && !(recomputes_results && has_history[value]);
    if (may_be_result || (saved[i].from == Saved::From::Forward && !has_history[value])) given.push_back({i, has_history[value]});
  }
  return given;
}

// Values that the forward has saved, and that are recomputed because derivatives flow through them.
std::vector<SecondOrder::Recomputed> find_recomputed(const JointUses& uses, const std::vector<ValueId>& saved_values,
                                                     const std::vector<Saved>& saved, const std::vector<bool>& is_known,
                                                     const std::vector<bool>& is_read) {
  const std::vector<bool> is_of_forward = values_of_forward(uses);
  std::vector<SecondOrder::Recomputed> recomputed;
  for (uint32_t i = 0; i < saved.size(); ++i) {
    const uint32_t value = saved_values[i].index;
    if (saved[i].from != Saved::From::Forward || value >= is_of_forward.size() || !is_of_forward[value]) continue;
    if (is_read[value] && !is_known[value]) recomputed.push_back({i, uses.is_contiguous({value})});
  }
  return recomputed;
}

// By value: true for the values that gradients depend on, up to and with known ones. Sets `why_not` if one of them must not be recomputed.
std::vector<bool> find_read(const JointUses& uses, std::vector<ValueId> open, const std::vector<bool>& is_known, const char*& why_not) {
  std::vector<bool> is_read(is_known.size());
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (!value.defined() || is_read[value.index]) continue;
    is_read[value.index] = true;
    const uint32_t maker = uses.maker_of(value);
    if (is_known[value.index] || maker == JointUses::kNone) continue;
    if (const char* const reason = why_not_recomputed(uses, uses.instr(maker))) why_not = reason;
    capture::for_each_use(uses.instr(maker), [&](ValueId read) { open.push_back(read); });
  }
  return is_read;
}

}  // namespace

capture::Joint with_flows(const capture::Joint& joint, const std::vector<bool>& flows) {
  if (std::find(flows.begin(), flows.end(), false) == flows.end()) return joint;
  const auto some = codegen::with_some_tangents(joint, flows);
  return some ? *some : codegen::with_gradients_of(joint, flows);
}

ReadForDerivatives read_for_derivatives(const SecondOrder& order, const capture::Joint& joint, const std::vector<ValueId>& saved_values) {
  const JointUses uses(joint);
  std::vector<bool> is_known(uses.graph().values.size());  // by value
  for (const auto& given : order.given) is_known[saved_values[given.saved].index] = true;
  const auto gradients = joint.gradient_values();
  const char* why_not = nullptr;
  const std::vector<bool> is_read = find_read(uses, {gradients.begin(), gradients.end()}, is_known, why_not);
  ReadForDerivatives read{std::vector<bool>(saved_values.size()), {}};
  for (const auto& given : order.given) read.saved[given.saved] = is_read[saved_values[given.saved].index];
  for (const auto& [saved, was_contiguous] : order.recomputed) read.saved[saved] = is_read[saved_values[saved].index];
  for (const auto& [number, saved] : order.primals) {
    read.primals.push_back(is_read[joint.primal_values()[number].index]);
    if (saved && read.primals.back()) read.saved[*saved] = true;
  }
  return read;
}

SecondOrder second_order_of(capture::Joint joint, const std::vector<ValueId>& saved_values, const std::vector<Saved>& saved,
                            const std::vector<uint32_t>& with_gradients, bool recomputes_results) {
  SecondOrder order;
  order.recomputes_results = recomputes_results;
  joint = without_running_statistics(joint);
  const JointUses uses(joint);
  order.given = find_given(uses, saved_values, saved, with_gradients, recomputes_results);
  std::vector<bool> is_known(uses.graph().values.size());  // by value
  for (const auto& given : order.given) is_known[saved_values[given.saved].index] = true;
  for (const ValueId tangent : joint.tangent_values()) {
    if (tangent.defined()) is_known[tangent.index] = true;
  }
  std::vector<ValueId> gradients;
  for (const uint32_t primal : with_gradients) {
    if (primal < joint.gradient_values().size()) gradients.push_back(joint.gradient_values()[primal]);
  }
  const std::vector<bool> is_read = find_read(uses, std::move(gradients), is_known, order.why_not);
  std::erase_if(order.given, [&](const SecondOrder::Given& given) { return !is_read[saved_values[given.saved].index]; });
  order.recomputed = find_recomputed(uses, saved_values, saved, is_known, is_read);
  for (uint32_t number = 0; number < joint.primals; ++number) {
    const ValueId value = joint.primal_values()[number];
    if (!value.defined() || !is_read[value.index] || is_known[value.index]) continue;
    const auto is_it = [&](const Saved& each) { return each.from == Saved::From::Primal && each.index == number; };
    const auto found = std::find_if(saved.begin(), saved.end(), is_it);
    const auto place = found == saved.end() ? std::nullopt : std::optional(static_cast<uint32_t>(found - saved.begin()));
    order.primals.push_back({number, place});
  }
  order.joint = std::move(joint);
  return order;
}

}  // namespace hindcast::engine
