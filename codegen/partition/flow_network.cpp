#include "codegen/partition/flow_network.h"

#include "base/check.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>

namespace hindcast::codegen {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;

struct VertexState {
  boost::default_color_type colour = boost::white_color;
  long distance = 0;
  Traits::edge_descriptor predecessor;
};

struct EdgeState {
  int64_t capacity = 0, residual = 0;
  Traits::edge_descriptor reverse;
};

using Network = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, VertexState, EdgeState>;

}  // namespace

std::vector<bool> FlowNetwork::sink_side() const {
  int64_t total = 0;
  for (const Edge& edge : edges_) total += edge.capacity == kTie ? 0 : edge.capacity;
  const int64_t tie = total + 1;
  Network network(vertices_);
  for (const Edge& edge : edges_) {
    const auto there = boost::add_edge(edge.from, edge.to, network).first;
    const auto back = boost::add_edge(edge.to, edge.from, network).first;
    network[there].capacity = edge.capacity == kTie ? tie : edge.capacity;
    network[there].reverse = back;
    network[back].reverse = there;
  }
  const int64_t flow = boost::boykov_kolmogorov_max_flow(
      network, boost::get(&EdgeState::capacity, network), boost::get(&EdgeState::residual, network),
      boost::get(&EdgeState::reverse, network), boost::get(&VertexState::predecessor, network), boost::get(&VertexState::colour, network),
      boost::get(&VertexState::distance, network), boost::get(boost::vertex_index, network), kSource, kSink);
  HC_CHECK(flow <= total, "the least cut of {} vertices has a tie in it", vertices_);

  // The vertices from which the sink is reachable in the residual network.
  std::vector<bool> is_on_sink_side(vertices_);
  std::vector<Vertex> open = {kSink};
  is_on_sink_side[kSink] = true;
  while (!open.empty()) {
    const Vertex vertex = open.back();
    open.pop_back();
    for (auto [edge, end] = boost::out_edges(vertex, network); edge != end; ++edge) {
      const auto next = static_cast<Vertex>(boost::target(*edge, network));
      if (is_on_sink_side[next] || network[network[*edge].reverse].residual == 0) continue;
      is_on_sink_side[next] = true;
      open.push_back(next);
    }
  }
  return is_on_sink_side;
}

}  // namespace hindcast::codegen
