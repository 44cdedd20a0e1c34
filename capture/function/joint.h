#pragma once
// A function's forward and its backward as one program, before a partition splits it in two.

#include "hindcast/graph.h"

namespace hindcast::capture {

/// A program may read `known`, which holds the same numbers, instead of computing `computed`. Derivatives flow only through `computed`.
struct KnownValue {
  ValueId computed, known;
};

/// `graph.inputs` are the primals, then the tangents; `graph.outputs` the forward's results, then the gradients of the primals.
/// A result is what the function returns, or the new contents of a tensor that the function writes to.
struct Joint {
  std::shared_ptr<const Graph> graph;
  uint32_t primals = 0;                        // how many of the graph's inputs
  uint32_t results = 0;                        // how many of the graph's outputs
  uint32_t forward_end = 0;                    // instrs before it were recorded while the function ran, the others during its backward
  bool draws_atens = false;                    // its kernels may draw no random numbers of their own
  std::vector<KnownValue> known = {};          // see codegen/partition/known_values.h
  std::vector<std::string> primal_names = {};  // by primal, for texts; a missing or empty one: "primals_3"

  std::span<const ValueId> primal_values() const { return std::span(graph->inputs).first(primals); }
  std::span<const ValueId> tangent_values() const { return std::span(graph->inputs).subspan(primals); }
  std::span<const ValueId> result_values() const { return std::span(graph->outputs).first(results); }
  std::span<const ValueId> gradient_values() const { return std::span(graph->outputs).subspan(results); }
};

/// The two programs that a partition makes of a Joint. Both keep its value numbers.
struct Partitioned {
  std::shared_ptr<const Graph> forward;   // computes the results, then the saved values, from the primals
  std::shared_ptr<const Graph> backward;  // computes the gradients from the saved values, then the tangents
  std::vector<ValueId> saved;             // may contain primals
};

}  // namespace hindcast::capture
