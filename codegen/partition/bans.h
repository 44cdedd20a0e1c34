#pragma once
// Which instrs of the forward the backward must not recompute. In fused kernels, which are bound by memory traffic, recomputation is
// nearly free; these rules are the exceptions. They are those of PyTorch's partitioner, except for norms, softmax and losses, which
// hindcast fuses with their producers.

#include "codegen/partition/op_classes.h"

#include <functional>
#include <vector>

namespace hindcast::codegen {

enum class Ban : uint8_t {
  None,
  Always,        // banned by the user
  Compared,      // an operand of an instr that compares_tensors()
  Cost,          // not memory-bound, or an op that kernels do not support
  Reduction,     // its result is small compared with its operands
  Materialised,  // the backward needs it in memory, so that recomputation costs a kernel's writes
  FarApart,      // an operand is also used much earlier, so that no kernel would contain both uses
  LongChain,     // recomputing it would recompute a chain of a hundred others
};

/// Whether the ban holds for any memory budget.
constexpr bool is_for_ever(Ban ban) { return ban == Ban::Always || ban == Ban::Compared; }

class Bans {
 public:
  using Predicate = std::function<bool(const capture::Instr&)>;
  Bans(const JointUses& uses, const Predicate& is_banned_by_user);

  /// The first rule that forbids recomputing the instr, or None.
  Ban of(uint32_t i) const { return bans_[i]; }
  OpClass class_of(uint32_t i) const { return classes_[i]; }
  /// Number of instrs between the value and the backward; kFar if the backward does not depend on it.
  static constexpr int32_t kFar = 1'000'000'000;
  int32_t distance_of(capture::ValueId value) const { return distances_[value.index]; }
  /// Whether the value is written to memory even if it is not saved, because a reader cannot be fused with its producer.
  bool is_materialised(capture::ValueId value) const { return is_materialised_[value.index]; }

 private:
  void find_materialised();
  void find_distances();
  void ban_compared();
  void ban(uint32_t i, Ban reason);
  bool is_reduction(uint32_t i) const;
  bool is_materialised_in_backward(capture::ValueId value) const;
  void ban_far_apart();
  void ban_long_chains();
  bool is_fusible_with(capture::ValueId value, uint32_t user) const;

  const JointUses& uses_;
  std::vector<OpClass> classes_;       // by instr
  std::vector<bool> is_forward_;       // by instr: needed for the forward's results
  std::vector<Ban> bans_;              // by instr
  std::vector<bool> is_materialised_;  // by value
  std::vector<int32_t> distances_;
};

}  // namespace hindcast::codegen
