#pragma once
// What happens to a graph before its instrs are made groups. A capture records faithfully; this is the one place that takes liberties,
// and only such as leave every bit, every error and every alias that user code could see as they are. Where the rest computes to the
// stock engine's bits, the signs of zeros count as bits.

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

/// All of them, in order.
std::span<const Pass> passes();

struct Optimised {
  std::shared_ptr<const capture::Graph> graph;
  Replacements replaced;  // what all passes together put in the place of what the given graph has
  bool keeps_signs_of_zeros = true;
  capture::ValueId replacement_of(capture::ValueId value) const;
};

/// Runs the passes; with no change the graph is the given one. The log `graph` has the graph behind each pass, or "(unchanged)".
/// `costs`: of the device that kernels of the graph are for. Throws InternalError when a pass leaves a graph that is none.
Optimised optimise(std::shared_ptr<const capture::Graph> graph, const CostModel& costs, bool to_the_bit = false);

}  // namespace hindcast::codegen
