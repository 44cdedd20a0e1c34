#pragma once

#include "cache/miss.h"
#include "capture/backward/collected.h"
#include "capture/backward/trace.h"

#include <vector>

namespace hindcast::engine {

/// Counts and logs one miss. For a new structure, finds the first node at which it differs from all earlier structures; otherwise
/// `misses` say what changed.
void log_misses(const capture::Collected& collected, bool new_structure, const capture::Resume& resume,
                const std::vector<cache::Miss>& misses);
void log_graph(const capture::Graph& graph);
void forget_structures();

}  // namespace hindcast::engine
