#pragma once
// A capture that can be done again on copies, to see whether the graph says what happened.

#include "capture/graph/graph.h"
#include "capture/graph/same_bits.h"

namespace hindcast::capture {

/// What a capture was given and what it made, as copies: enough to replay the graph and compare.
struct ReplayCheck {
  std::vector<std::pair<ValueId, at::Tensor>> inputs, results;
  /// Replays the graph's ATen instrs on the copies. Says what differs from the capture by a bit; nullopt: nothing does.
  std::optional<std::string> find_difference(const Graph& graph, Zeros zeros = Zeros::Signed) const;
  /// Bytes of the copies.
  size_t footprint() const;
  /// All values of the graph, by ATen, from the copies.
  std::unordered_map<uint32_t, at::Tensor> replay(const Graph& graph) const;
};

}  // namespace hindcast::capture
