#pragma once

#include "capture/graph/graph.h"
#include "engine/options.h"

namespace hindcast::engine {

/// Asks a graph compiler of the user's. Empty: replay through ATen (also when it threw, which is logged).
std::vector<SegmentFunction> compile_segments(const Options& options, const std::shared_ptr<const capture::Graph>& graph);

}  // namespace hindcast::engine
