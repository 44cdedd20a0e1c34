#pragma once
// Where infinities and NaN began: the graphs of a backward, replayed op by op on what they were given.

#include "engine/diagnosis/replay_leg.h"

#include <string>
#include <vector>

namespace hindcast::engine {

/// Some lines, for a backward some of whose gradients are not finite. Nothing but the log sees of the replay.
std::string describe_origin(const std::vector<Leg>& legs, const capture::Collected& collected);

}  // namespace hindcast::engine
