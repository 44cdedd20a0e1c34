#pragma once

#include "codegen/partition/joint_uses.h"

namespace hindcast::codegen {

/// Saves what the autograd formulas save: all that the instrs of the backward read from before it. Only views are taken again.
capture::Partitioned standard(const capture::Joint& joint);
capture::Partitioned standard(const JointUses& uses);

}  // namespace hindcast::codegen
