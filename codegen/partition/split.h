#pragma once

#include "codegen/partition/joint_uses.h"

#include <vector>

namespace hindcast::codegen {

/// The joint program in two halves, where `saved` and the primals pass from one to the other. Each half has what its outputs need, and
/// what stays in it whoever reads it: random ops, ops with effects. So the backward computes again what it needs and is not saved, as
/// late as it can. The halves share the joint's symbols.
///
/// What is saved in the end is what the backward reads:
///   - primals first, then the rest, both in the joint's order, each once
///   - what cannot be computed again is added
///   - a view goes where what it is a view of is there: it is taken again
///
/// Throws std::invalid_argument for a value of `saved` that the forward cannot have.
capture::Partitioned split(const capture::Joint& joint, const std::vector<capture::ValueId>& saved);
capture::Partitioned split(const JointUses& uses, const std::vector<capture::ValueId>& saved);

/// The backward alone, behind a forward that saves just these: its inputs are all of them, undefined where it reads none, then the tangents.
/// Null: it needs another value.
std::shared_ptr<const capture::Graph> backward_behind(const capture::Joint& joint, const std::vector<capture::ValueId>& saved);

}  // namespace hindcast::codegen
