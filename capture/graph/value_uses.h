#pragma once
// Which instr makes each value of a graph, and which instrs read it: one table for fusion, partitions, passes and diagnosis.

#include "base/index.h"
#include "hindcast/graph.h"

#include <cstdint>
#include <span>
#include <vector>

namespace hindcast::capture {

/// A snapshot: later changes of the graph are not seen.
class ValueUses {
 public:
  explicit ValueUses(const Graph& graph);

  /// base::kNoIndex for an input of the graph.
  uint32_t maker_of(ValueId value) const { return makers_[value.index]; }
  /// Position among the graph's inputs; base::kNoIndex for a value that an instr makes.
  uint32_t input_number(ValueId value) const { return input_numbers_[value.index]; }
  /// The instrs that read it, events among them, in ascending order; each once.
  std::span<const uint32_t> users_of(ValueId value) const {
    return {users_.data() + first_user_[value.index], users_.data() + first_user_[value.index + 1]};
  }
  /// Whether the graph returns it.
  bool is_returned(ValueId value) const { return is_returned_[value.index]; }

 private:
  std::vector<uint32_t> makers_, input_numbers_;  // by value
  std::vector<uint32_t> first_user_, users_;      // the users of value v: from first_user_[v] to first_user_[v + 1]
  std::vector<bool> is_returned_;                 // by value
};

}  // namespace hindcast::capture
