#pragma once
// The analysis of a joint program that all partitioners share: which instr makes a value, which values depend on a tangent, which instrs
// may run in either half, and which values share memory.

#include "base/index.h"
#include "capture/function/joint.h"
#include "capture/graph/value_uses.h"
#include "codegen/fuse/views.h"

#include <cstdint>
#include <span>
#include <vector>

namespace hindcast::codegen {

/// Whether the instr has side effects or draws random numbers, or may do so: it runs once, in the half that it was captured in.
bool stays_where_it_is(const capture::Instr& instr);

/// Whether the instr compares tensors element by element, as the derivative of a maximum does to find its place. Its operands must not be
/// recomputed: another kernel may round differently, and then no element equals the maximum.
bool compares_tensors(const capture::Instr& instr);

class JointUses {
 public:
  static constexpr uint32_t kNone = base::kNoIndex;

  /// Keeps a reference to `joint`.
  explicit JointUses(const capture::Joint& joint);

  const capture::Joint& joint() const { return joint_; }
  const capture::Graph& graph() const { return *joint_.graph; }
  const capture::Instr& instr(uint32_t i) const { return joint_.graph->instrs[i]; }

  /// The instr that makes the value; kNone for an input.
  uint32_t maker_of(capture::ValueId value) const { return uses_.maker_of(value); }
  bool is_primal(capture::ValueId value) const { return uses_.input_number(value) < joint_.primals; }
  /// Position among the graph's inputs; kNone for a value that an instr makes.
  uint32_t input_number(capture::ValueId value) const { return uses_.input_number(value); }
  std::span<const uint32_t> users_of(capture::ValueId value) const { return uses_.users_of(value); }
  bool is_returned(capture::ValueId value) const { return uses_.is_returned(value); }

  /// Whether only the backward can compute the value: it depends on a tangent, or on an instr that stays in the backward.
  bool is_of_backward(capture::ValueId value) const { return value_needs_backward_[value.index]; }
  /// The same for an instr. All others can run in either half.
  bool runs_in_backward(uint32_t i) const { return instr_needs_backward_[i]; }
  bool stays(uint32_t i) const { return stays_[i]; }
  /// Whether the instr runs exactly once, in the forward.
  bool is_held_in_forward(uint32_t i) const { return stays_[i] && !instr_needs_backward_[i]; }

  /// The base of a view, if the view can be recomputed at no cost; otherwise undefined.
  capture::ValueId viewed_by(capture::ValueId value) const { return viewed_[value.index]; }
  /// The value that owns the memory.
  capture::ValueId memory_of(capture::ValueId value) const;
  bool is_contiguous(capture::ValueId value) const { return codegen::is_contiguous(graph(), graph().values[value.index]); }
  /// Bytes of the value itself, with the sizes at capture.
  int64_t bytes_of(capture::ValueId value) const { return bytes_[value.index]; }

  /// By instr: whether it is needed for these values, or for an instr that stays in the forward or backward, as `in_backward` says. The
  /// search stops at values for which `stop` is true.
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
  const capture::ValueUses uses_;
  std::vector<bool> value_needs_backward_;  // by value
  std::vector<capture::ValueId> viewed_;
  std::vector<int64_t> bytes_;
  std::vector<bool> instr_needs_backward_, stays_;  // by instr
};

/// By value: true for memory whose values some instr compares (compares_tensors).
std::vector<bool> find_compared(const JointUses& uses);

/// Bytes of the saved values, each memory counted once. Primals count 0, since they exist anyway.
int64_t saved_bytes(const JointUses& uses, std::span<const capture::ValueId> saved);

}  // namespace hindcast::codegen
