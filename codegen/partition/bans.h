#pragma once
// Which instrs of the forward the backward does not compute again though it could. With kernels that fuse, what is computed again is nearly
// free, since memory is what takes time; the rules are where that is not so. They are those of PyTorch's partitioner, but for norms, softmax
// and losses: here these share a kernel with what they read.

#include "codegen/partition/op_classes.h"

#include <functional>
#include <vector>

namespace hindcast::codegen {

enum class Ban : uint8_t {
  None,
  Always,        // the user says so
  Compared,      // compares_tensors() reads it
  Cost,          // more than to read and write, or an op that no kernel has
  Reduction,     // its result is small beside what it reads
  Materialised,  // the backward needs it in memory, so computing it again is work
  FarApart,      // reads what is used much earlier too: no kernel would have both uses
  LongChain,     // computed again, it would take a hundred others along
};

/// However little memory there is.
constexpr bool is_for_ever(Ban ban) { return ban == Ban::Always || ban == Ban::Compared; }

class Bans {
 public:
  using Predicate = std::function<bool(const capture::Instr&)>;
  Bans(const JointUses& uses, const Predicate& is_banned_by_user);

  /// The first of the rules that forbids it.
  Ban of(uint32_t i) const { return bans_[i]; }
  OpClass class_of(uint32_t i) const { return classes_[i]; }
  /// How many instrs lie between the value and the backward; kFar: it does not get there.
  static constexpr int32_t kFar = 1'000'000'000;
  int32_t distance_of(capture::ValueId value) const { return distances_[value.index]; }
  /// Whether it is in memory whoever saves it: somebody that reads it cannot share a kernel with its maker.
  bool is_materialised(capture::ValueId value) const { return is_materialised_[value.index]; }

 private:
  void find_users();
  void find_distances();
  void ban_compared();
  void ban(uint32_t i, Ban reason);
  bool is_reduction(uint32_t i) const;
  bool is_materialised_in_backward(capture::ValueId value) const;
  void ban_far_apart();
  void ban_long_chains();
  bool is_fusible_with(capture::ValueId value, uint32_t user) const;

  const JointUses& uses_;
  std::vector<OpClass> classes_;                     // by instr
  std::vector<bool> is_forward_;                     // by instr: needed for the results
  std::vector<Ban> bans_;                            // by instr
  std::vector<std::vector<uint32_t>> users_;         // by value: instrs, ascending
  std::vector<bool> is_returned_, is_materialised_;  // by value
  std::vector<int32_t> distances_;
};

}  // namespace hindcast::codegen
