#pragma once
// What every partition asks of a joint program: who makes a value, what depends on a tangent, what may run in either half, and which
// values lie in one memory.

#include "capture/function/joint.h"

#include <cstdint>
#include <span>
#include <vector>

namespace hindcast::codegen {

/// Has an effect or draws random numbers, or nobody knows: it runs once, in the half that it was recorded in.
bool stays_where_it_is(const capture::Instr& instr);

/// Compares tensors element by element, as the derivative of a maximum does to find its place. An operand must not be recomputed: another kernel
/// may round differently, and then no element equals the maximum.
bool compares_tensors(const capture::Instr& instr);

class JointUses {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  /// Keeps a reference to `joint`.
  explicit JointUses(const capture::Joint& joint);

  const capture::Joint& joint() const { return joint_; }
  const capture::Graph& graph() const { return *joint_.graph; }
  const capture::Instr& instr(uint32_t i) const { return joint_.graph->instrs[i]; }

  /// The instr; kNone for an input.
  uint32_t maker_of(capture::ValueId value) const { return makers_[value.index]; }
  bool is_primal(capture::ValueId value) const { return input_numbers_[value.index] < joint_.primals; }
  /// Position among the graph's inputs, kNone for a value that an instr makes.
  uint32_t input_number(capture::ValueId value) const { return input_numbers_[value.index]; }

  /// Only the backward can have it: it depends on a tangent, or on what stays in the backward.
  bool is_of_backward(capture::ValueId value) const { return value_needs_backward_[value.index]; }
  /// The same of an instr. Any other can run in both.
  bool runs_in_backward(uint32_t i) const { return instr_needs_backward_[i]; }
  bool stays(uint32_t i) const { return stays_[i]; }
  /// Runs in the forward, once.
  bool is_held_in_forward(uint32_t i) const { return stays_[i] && !instr_needs_backward_[i]; }

  /// What a view is taken of, where it can be taken again at no cost; else undefined.
  capture::ValueId viewed_by(capture::ValueId value) const { return viewed_[value.index]; }
  /// The value whose memory it lies in.
  capture::ValueId memory_of(capture::ValueId value) const;
  /// Of the value itself, by the sizes at capture.
  int64_t bytes_of(capture::ValueId value) const { return bytes_[value.index]; }

  /// By instr: whether these values or any held in the half that `in_backward` names need it. What `stop` holds of is given.
  template <class Stop>
  std::vector<bool> needed_for(std::span<const capture::ValueId> values, bool in_backward, Stop stop) const {
    std::vector<bool> needed(graph().instrs.size());
    std::vector<uint32_t> open;
    const auto need = [&](capture::ValueId value) {
      if (!value.defined() || maker_of(value) == kNone || stop(value) || needed[maker_of(value)]) return;
      needed[maker_of(value)] = true;
      open.push_back(maker_of(value));
    };
    for (uint32_t i = 0; i < needed.size(); ++i) {
      if (!stays_[i] || instr_needs_backward_[i] != in_backward || needed[i]) continue;
      needed[i] = true;
      open.push_back(i);
    }
    for (const capture::ValueId value : values) need(value);
    while (!open.empty()) {
      const uint32_t i = open.back();
      open.pop_back();
      capture::for_each_use(instr(i), need);
    }
    return needed;
  }

 private:
  capture::ValueId find_viewed(const capture::Instr& instr) const;

  const capture::Joint& joint_;
  std::vector<uint32_t> makers_, input_numbers_;  // by value
  std::vector<bool> value_needs_backward_;
  std::vector<capture::ValueId> viewed_;
  std::vector<int64_t> bytes_;
  std::vector<bool> instr_needs_backward_, stays_;  // by instr
};

/// Bytes that the forward makes and the backward needs: each memory once. Primals are there without them.
int64_t saved_bytes(const JointUses& uses, std::span<const capture::ValueId> saved);

}  // namespace hindcast::codegen
