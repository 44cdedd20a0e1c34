#pragma once

#include "engine/counters/stats.h"

#include <string>
#include <vector>

namespace hindcast::engine {

/// `stats` as text for people: aligned, with the reason of each fallback in a sentence. `recent_misses` are sentences,
/// oldest first.
std::string report(const Stats& stats, const std::vector<std::string>& recent_misses);

}  // namespace hindcast::engine
