#pragma once
// Traces non-finite gradients back to where they began.
//
// That is not the first op with an infinity in its result: masks hold infinities, and formulas divide by zero in elements that they
// then discard. The search goes from the gradients back along non-finite values; of all places where such a chain ends, it reports the
// earliest.

#include "engine/diagnosis/replay_leg.h"

namespace hindcast::engine {

struct Origin {
  size_t leg = 0;
  uint32_t instr = kNoInstr;  // that made the value, or that reads `given`; kNoInstr: only nodes that ran untraced read `given`
  capture::ValueId given;     // undefined if the instr made it from finite values
};

/// Returns nullopt if all values are finite in the replay.
std::optional<Origin> find_origin(const std::vector<Leg>& legs);

}  // namespace hindcast::engine
