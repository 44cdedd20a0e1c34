#pragma once

#include <cstdint>
#include <vector>

namespace hindcast::codegen {

/// Vertices and edges with capacities between a source and a sink, and the least cut between them, by Boost.Graph.
class FlowNetwork {
 public:
  using Vertex = uint32_t;
  static constexpr Vertex kSource = 0, kSink = 1;

  Vertex add_vertex() { return vertices_++; }
  /// `capacity` is 0 or more; the sum of all must be less than half of what an int64_t holds.
  void add_edge(Vertex from, Vertex to, int64_t capacity) { edges_.push_back({from, to, capacity}); }
  /// An edge that no cut has.
  void add_tie(Vertex from, Vertex to) { edges_.push_back({from, to, kTie}); }

  /// By vertex: whether the least cut leaves it on the sink's side. Of several least cuts it is the one nearest to the sink.
  /// Throws InternalError where ties connect source and sink.
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
