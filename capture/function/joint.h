#pragma once
// A function's forward and its backward as one program, before a partition makes two of them.

#include "capture/graph/graph.h"

namespace hindcast::capture {

/// `graph.inputs` are the primals, then the tangents; `graph.outputs` the forward's results, then the gradients of the primals.
/// A result is what the function returns, or what becomes of a tensor that the function writes to.
struct Joint {
  std::shared_ptr<const Graph> graph;
  uint32_t primals = 0;                        // how many of the graph's inputs
  uint32_t results = 0;                        // how many of the graph's outputs
  uint32_t forward_end = 0;                    // instrs before it were recorded while the function ran, the others while its backward did
  bool draws_atens = false;                    // its kernels may draw no random numbers of their own
  std::vector<std::string> primal_names = {};  // by primal, for texts; shorter, or an empty one: "primals_3"

  std::span<const ValueId> primal_values() const { return std::span(graph->inputs).first(primals); }
  std::span<const ValueId> tangent_values() const { return std::span(graph->inputs).subspan(primals); }
  std::span<const ValueId> result_values() const { return std::span(graph->outputs).first(results); }
  std::span<const ValueId> gradient_values() const { return std::span(graph->outputs).subspan(results); }
};

/// What a partition makes of it. Both programs keep the joint's numbers of values.
struct Partitioned {
  std::shared_ptr<const Graph> forward;   // the primals to the results, then the saved values
  std::shared_ptr<const Graph> backward;  // the saved values, then the tangents, to the gradients
  std::vector<ValueId> saved;             // primals among them
};

}  // namespace hindcast::capture
