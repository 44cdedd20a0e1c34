#pragma once

#include "codegen/partition/joint_uses.h"

namespace hindcast::codegen {

/// Saves what the autograd formulas save: every value of the forward that an instr of the backward reads. Only views are recomputed.
capture::Partitioned standard(const capture::Joint& joint);
capture::Partitioned standard(const JointUses& uses);

}  // namespace hindcast::codegen
