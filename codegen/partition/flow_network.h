#pragma once

#include <cstdint>
#include <vector>

namespace hindcast::codegen {

/// A flow network with a source and a sink, and its minimum cut, by Boost.Graph.
class FlowNetwork {
 public:
  using Vertex = uint32_t;
  static constexpr Vertex kSource = 0, kSink = 1;

  Vertex add_vertex() { return vertices_++; }
  /// `capacity` is 0 or more; the sum of all capacities must be less than half of the largest int64_t.
  void add_edge(Vertex from, Vertex to, int64_t capacity) { edges_.push_back({from, to, capacity}); }
  /// An edge of infinite capacity: no cut contains it.
  void add_tie(Vertex from, Vertex to) { edges_.push_back({from, to, kTie}); }

  /// By vertex: whether it is on the sink's side of the minimum cut. Of several minimum cuts, the one nearest to the sink is taken.
  /// Throws InternalError if ties connect source and sink.
  std::vector<bool> sink_side() const;

 private:
  static constexpr int64_t kTie = -1;
  struct Edge {
    Vertex from, to;
    int64_t capacity;
  };
  std::vector<Edge> edges_;
  uint32_t vertices_ = 2;
};

}  // namespace hindcast::codegen
