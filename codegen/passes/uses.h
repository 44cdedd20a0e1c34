#pragma once
// Who reads the values of a graph, and which values lie in one memory.

#include "codegen/passes/rewrite.h"

#include <vector>

namespace hindcast::codegen {

enum class UseKind : uint8_t {
  Read,
  Wait,       // by an event, in case the program is left to somebody else
  Overwrite,  // base of a Mutate, first of two gradients that are added: written to where a run finds that nobody else holds it
  Keep,       // by an event that may keep its memory, as a leaf does as its `.grad`
  Show,       // to user code, or as a result
};

struct Use {
  uint32_t instr;
  UseKind kind;
  capture::ValueId value;
};

/// Of a graph as `rewrite` would leave it.
class Uses {
 public:
  explicit Uses(const capture::Graph& graph, const Rewrite& rewrite = {});

  const std::vector<Use>& of(capture::ValueId value) const { return uses_[value.index]; }
  /// Of all values that lie in this one's memory.
  std::vector<Use> of_memory(capture::ValueId value) const;

  /// Number of the segment. A leaf with post-accumulate hooks reads its gradient before they run: it counts for the segment
  /// that it ends.
  uint32_t segment_of(uint32_t instr) const { return segments_[instr]; }
  /// By an instr of the graph, not given to it and not returned by a boundary.
  bool is_computed(capture::ValueId value) const { return is_computed_[value.index]; }
  /// Whether a leaf accumulates at an instr in (first, last].
  bool accumulates_between(uint32_t first, uint32_t last) const { return accumulations_[last] != accumulations_[first]; }

 private:
  uint32_t memory_of(uint32_t value) const;
  void add(uint32_t instr, UseKind kind, capture::ValueId value);

  std::vector<std::vector<Use>> uses_;
  std::vector<uint32_t> shares_with_;  // union-find: a value of the same memory, or itself
  std::vector<std::vector<uint32_t>> members_;
  std::vector<uint32_t> segments_, accumulations_;  // by instr; accumulations up to it
  std::vector<bool> is_computed_;
};

}  // namespace hindcast::codegen
