#pragma once

#include "hindcast/graph.h"
#include "hindcast/options.h"

namespace hindcast::engine {

/// Calls the user's graph compiler. Returns an empty list if the graph is to be replayed through ATen, also if the compiler threw (logged).
std::vector<SegmentFunction> compile_segments(const Options& options, const std::shared_ptr<const capture::Graph>& graph);

}  // namespace hindcast::engine
