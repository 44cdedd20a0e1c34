#pragma once

#include "codegen/partition/joint_uses.h"

#include <vector>

namespace hindcast::codegen {

/// Splits the joint program into forward and backward, where `saved` and the primals pass from one to the other. Each half contains the
/// instrs that its outputs need, and those that must stay in it: random ops, and ops with side effects. The backward recomputes, as late as
/// possible, what it needs and is not saved. The halves share the joint's symbols.
///
/// The values saved in the end are those that the backward reads:
///   - primals first, then the rest, both in the joint's order, each once
///   - values that cannot be recomputed are added
///   - a view is dropped if its base is saved: the view is recomputed
///
/// Throws std::invalid_argument if the forward cannot compute a value of `saved`.
capture::Partitioned split(const capture::Joint& joint, const std::vector<capture::ValueId>& saved);
capture::Partitioned split(const JointUses& uses, const std::vector<capture::ValueId>& saved);

/// The backward alone, for a forward that saves exactly these values. Its inputs are the saved values, undefined where not read, then the
/// tangents. nullptr if it needs another value.
std::shared_ptr<const capture::Graph> backward_behind(const capture::Joint& joint, const std::vector<capture::ValueId>& saved);

}  // namespace hindcast::codegen
