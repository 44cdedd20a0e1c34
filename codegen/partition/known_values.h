#pragma once

#include "capture/function/joint.h"

namespace hindcast::codegen {

/// The joint program that reads Joint::known instead of computing those values, without the instrs that nothing reads then. It is not to be
/// differentiated: the known values are constants for autograd.
capture::Joint with_known_values(const capture::Joint& joint);

}  // namespace hindcast::codegen
