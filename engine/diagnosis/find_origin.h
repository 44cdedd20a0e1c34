#pragma once
// From gradients that are not finite back to where that began.
//
// That is not the first op with an infinity in its result: masks hold infinities, formulas divide by zero where they do not look. From
// the gradients the search goes back, from value to value that is not finite, and of all places where that ends it is the earliest.

#include "engine/diagnosis/replay_leg.h"

namespace hindcast::engine {

struct Origin {
  size_t leg = 0;
  uint32_t instr = kNoInstr;  // that made it, or that reads `given`; kNoInstr: a gradient that only nodes read that ran as themselves
  capture::ValueId given;     // undefined: the instr made it of finite values
};

/// Nullopt: all is finite when it is replayed.
std::optional<Origin> find_origin(const std::vector<Leg>& legs);

}  // namespace hindcast::engine
