#pragma once
// Finds where infinities and NaN began, by replaying a backward's graphs op by op on their original inputs.

#include "engine/diagnosis/replay_leg.h"

#include <string>
#include <vector>

namespace hindcast::engine {

/// A few lines of text on a backward with non-finite gradients. The replay has no effects.
std::string describe_origin(const std::vector<Leg>& legs, const capture::Collected& collected);

}  // namespace hindcast::engine
