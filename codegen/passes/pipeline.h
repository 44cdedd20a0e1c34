#pragma once
// The graph passes that run before fusion. A capture records what happened; these passes are the only place that changes the graph, and
// they preserve every bit, error and alias that user code can observe. The sign of zeros is preserved only when results must be bitwise
// equal to the stock engine's.

#include "codegen/fuse/cost_model.h"
#include "codegen/passes/rewrite.h"

#include <memory>
#include <span>
#include <string_view>

namespace hindcast::codegen {

struct Pass {
  std::string_view name;
  Rewrite (*run)(const capture::Graph&, const CostModel&);
  bool keeps_signs_of_zeros = true;
};

/// All passes, in order.
std::span<const Pass> passes();

struct Optimised {
  std::shared_ptr<const capture::Graph> graph;
  Replacements replaced;  // the replacements of all passes combined, by value of the given graph
  bool keeps_signs_of_zeros = true;
  capture::ValueId replacement_of(capture::ValueId value) const;
};

/// Runs the passes; returns the given graph if nothing changes. The log `graph` has the graph after each pass, or "(unchanged)".
/// `costs`: the cost model of the device that the graph's kernels are for. Throws InternalError if a pass leaves an invalid graph.
Optimised optimise(std::shared_ptr<const capture::Graph> graph, const CostModel& costs, bool bitwise = false);

}  // namespace hindcast::codegen
