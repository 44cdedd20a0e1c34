#include "codegen/partition/bans.h"

#include "codegen/fuse/random_ops.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::ValueId;

namespace {

// Whether the value is a seed or a counter of a random op. All masks of a program read these, so they do not tie kernels together.
bool is_drawn_from(ValueId value, const Instr& instr) {
  if (!instr.op) return false;
  const auto& name = instr.op->operator_name();
  return name == random_ops().bernoulli.operator_name() ||
         (name == random_ops().dropout.operator_name() && instr.args[0].values[0] != value);
}

}  // namespace

Bans::Bans(const JointUses& uses, const Predicate& is_banned_by_user) : uses_(uses), bans_(uses.graph().instrs.size(), Ban::None) {
  const Graph& graph = uses.graph();
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) classes_.push_back(codegen::class_of(uses, i));
  is_forward_ = uses.needed_for(uses.joint().result_values(), false, [](ValueId) { return false; });
  find_materialised();
  find_distances();
  ban_compared();
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    if (!is_forward_[i] || classes_[i] == OpClass::View) continue;
    const Instr& instr = graph.instrs[i];
    if (is_banned_by_user && is_banned_by_user(instr)) ban(i, Ban::Always);
    if (classes_[i] >= OpClass::Rows) ban(i, Ban::Cost);
    if (is_reduction(i)) ban(i, Ban::Reduction);
    const auto is_in_memory = [&](ValueId value) { return value.defined() && is_materialised_in_backward(value); };
    if (std::any_of(instr.outputs.begin(), instr.outputs.end(), is_in_memory)) ban(i, Ban::Materialised);
  }
  ban_far_apart();
  ban_long_chains();
}

void Bans::ban(uint32_t i, Ban reason) {
  if (bans_[i] == Ban::None && classes_[i] != OpClass::View) bans_[i] = reason;
}

// Bans the forward's instrs that make operands of comparisons. An operand that only the backward computes, such as an absolute value, is
// computed once; then the instrs that make its operands are banned.
void Bans::ban_compared() {
  std::vector<ValueId> open;
  for (uint32_t i = 0; i < uses_.graph().instrs.size(); ++i) {
    if (compares_tensors(uses_.instr(i))) capture::for_each_use(uses_.instr(i), [&](ValueId value) { open.push_back(value); });
  }
  std::vector<bool> is_compared(uses_.graph().values.size());
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (!value.defined() || is_compared[value.index] || uses_.is_of_backward(value)) continue;
    is_compared[value.index] = true;
    const uint32_t maker = uses_.maker_of(uses_.memory_of(value));
    if (maker == JointUses::kNone) continue;
    if (is_forward_[maker]) {
      ban(maker, Ban::Compared);
    } else {
      capture::for_each_use(uses_.instr(maker), [&](ValueId read) { open.push_back(read); });
    }
  }
}

void Bans::find_materialised() {
  const Graph& graph = uses_.graph();
  is_materialised_.resize(graph.values.size());
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    capture::for_each_use(graph.instrs[i], [&](ValueId value) {
      if (value.defined() && !is_fusible_with(value, i)) is_materialised_[value.index] = true;
    });
  }
  for (const ValueId value : graph.outputs) {
    if (value.defined()) is_materialised_[value.index] = true;
  }
}

bool Bans::is_fusible_with(ValueId value, uint32_t user) const {
  const uint32_t maker = uses_.maker_of(value);
  return maker != JointUses::kNone && is_fusible(classes_[maker], classes_[user]);
}

void Bans::find_distances() {
  const Graph& graph = uses_.graph();
  distances_.assign(graph.values.size(), kFar);
  const auto find = [&](ValueId value) {
    int32_t distance = kFar;
    for (const uint32_t user : uses_.users_of(value)) {
      if (!is_forward_[user]) distance = 0;
      for (const ValueId output : graph.instrs[user].outputs) {
        if (output.defined()) distance = std::min(distance, distances_[output.index]);
      }
    }
    distances_[value.index] = std::min(distance + 1, kFar);
  };
  for (auto i = static_cast<uint32_t>(graph.instrs.size()); i-- > 0;) {
    for (const ValueId output : graph.instrs[i].outputs) {
      if (!output.defined()) continue;
      if (is_forward_[i]) {
        find(output);
      } else {
        distances_[output.index] = 0;
      }
    }
  }
  for (const ValueId value : uses_.joint().primal_values()) {
    if (value.defined()) find(value);
  }
}

bool Bans::is_reduction(uint32_t i) const {
  constexpr int64_t kFactor = 4;
  int64_t read = 0, made = 0;
  const Instr& instr = uses_.instr(i);
  capture::for_each_use(instr, [&](ValueId value) {
    if (value.defined()) read += uses_.bytes_of(value);
  });
  for (const ValueId value : instr.outputs) {
    if (value.defined()) made += uses_.bytes_of(value);
  }
  return made * kFactor < read;
}

// Whether the value or a view of it is materialised in the backward.
bool Bans::is_materialised_in_backward(ValueId value) const {
  std::vector<ValueId> open = {value};
  while (!open.empty()) {
    const ValueId current = open.back();
    open.pop_back();
    if (uses_.is_returned(current)) return true;
    for (const uint32_t user : uses_.users_of(current)) {
      if (!is_forward_[user] && !is_fusible_with(current, user)) return true;
      if (classes_[user] != OpClass::View) continue;
      for (const ValueId view : uses_.instr(user).outputs) {
        if (view.defined()) open.push_back(view);
      }
    }
  }
  return false;
}

// Bans, of a value's uses in the forward, those after the first point where no kernel can contain both.
void Bans::ban_far_apart() {
  const Graph& graph = uses_.graph();
  constexpr uint32_t kNever = JointUses::kNone;
  // By instr: the first instr that cannot share a kernel with the chain of instrs from this one on.
  std::vector<uint32_t> first_end(graph.instrs.size(), kNever);
  for (auto i = static_cast<uint32_t>(graph.instrs.size()); i-- > 0;) {
    if (!is_forward_[i]) continue;
    for (const ValueId output : graph.instrs[i].outputs) {
      if (!output.defined()) continue;
      for (const uint32_t user : uses_.users_of(output)) {
        if (is_forward_[user]) first_end[i] = std::min(first_end[i], is_fusible_with(output, user) ? first_end[user] : user);
      }
    }
  }
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    if (!is_forward_[i]) continue;
    for (const ValueId value : graph.instrs[i].outputs) {
      if (!value.defined()) continue;
      uint32_t end = kNever;
      for (const uint32_t user : uses_.users_of(value)) {
        if (is_forward_[user]) end = std::min(end, first_end[user]);
      }
      for (const uint32_t user : uses_.users_of(value)) {
        if (is_forward_[user] && user > end && is_fusible_with(value, user) && !is_drawn_from(value, uses_.instr(user)))
          ban(user, Ban::FarApart);
      }
    }
  }
}

void Bans::ban_long_chains() {
  constexpr uint32_t kLongest = 100;
  const Graph& graph = uses_.graph();
  std::vector<uint32_t> order(graph.instrs.size());  // by instr: its position among the instrs of the forward
  uint32_t count = 0;
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = is_forward_[i] ? count++ : count;
  std::vector<bool> is_visited(graph.instrs.size());
  for (uint32_t start = 0; start < graph.instrs.size(); ++start) {
    if (!is_forward_[start] || is_visited[start]) continue;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> open;
    open.push(start);
    while (!open.empty()) {
      const uint32_t current = open.top();
      open.pop();
      if (is_visited[current]) continue;
      is_visited[current] = true;
      if (order[current] > order[start] + kLongest && open.empty()) {
        ban(current, Ban::LongChain);
        break;
      }
      for (const ValueId output : graph.instrs[current].outputs) {
        if (!output.defined()) continue;
        for (const uint32_t user : uses_.users_of(output)) {
          if (!is_forward_[user] || is_drawn_from(output, uses_.instr(user))) continue;
          if (is_fusible_with(output, user) && bans_[user] == Ban::None) open.push(user);
        }
      }
    }
  }
}

}  // namespace hindcast::codegen
