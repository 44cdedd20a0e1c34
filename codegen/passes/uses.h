#pragma once
// The uses of a graph's values, and which values share memory.

#include "codegen/passes/rewrite.h"

#include <vector>

namespace hindcast::codegen {

enum class UseKind : uint8_t {
  Read,
  Wait,       // held by an event, in case the rest is handed back to the stock engine
  Overwrite,  // base of a Mutate, or first of two gradients that are added: written in place if a run finds no other owner
  Keep,       // by an event that may keep the memory, as a leaf does for its `.grad`
  Show,       // visible to user code, or an output of the graph
};

struct Use {
  uint32_t instr;
  UseKind kind;
  capture::ValueId value;
};

/// The uses in a graph after `rewrite`.
class Uses {
 public:
  explicit Uses(const capture::Graph& graph, const Rewrite& rewrite = {});

  const std::vector<Use>& of(capture::ValueId value) const { return uses_[value.index]; }
  /// The uses of all values that share this one's memory.
  std::vector<Use> of_memory(capture::ValueId value) const;

  /// Index of the instr's segment. A leaf with post-accumulate hooks reads its gradient before they run, so it belongs to the segment that
  /// it ends.
  uint32_t segment_of(uint32_t instr) const { return segments_[instr]; }
  /// Whether the value is computed by an op, and is neither an input of the graph nor a result of a boundary.
  bool is_computed(capture::ValueId value) const { return is_computed_[value.index]; }
  /// Whether the value may be a ZeroTensor, which cannot be written to: it is a result of `_efficientzerotensor`, as in the derivative of
  /// sgn, or is computed from one.
  bool may_be_zero_tensor(capture::ValueId value) const { return may_be_zero_tensor_[value.index]; }
  /// Whether a leaf accumulates at an instr in (first, last].
  bool accumulates_between(uint32_t first, uint32_t last) const { return accumulations_[last] != accumulations_[first]; }

 private:
  uint32_t memory_of(uint32_t value) const;
  void add(uint32_t instr, UseKind kind, capture::ValueId value);

  std::vector<std::vector<Use>> uses_;
  std::vector<uint32_t> shares_with_;  // union-find: a value with the same memory, or itself
  std::vector<std::vector<uint32_t>> members_;
  std::vector<uint32_t> segments_, accumulations_;  // by instr; accumulations_: the number of accumulations up to it
  std::vector<bool> is_computed_, may_be_zero_tensor_;
};

}  // namespace hindcast::codegen
