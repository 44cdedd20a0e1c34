#pragma once

#include "hindcast/stats.h"

#include <string>
#include <vector>

namespace hindcast::engine {

/// Formats `stats` for people: aligned, with a sentence for each fallback reason. `recent_misses` are sentences, oldest first.
std::string report(const Stats& stats, const std::vector<std::string>& recent_misses);

}  // namespace hindcast::engine
