#pragma once
// Specialises a joint program for a backward that computes the gradients of only some arguments, as grad(result, x) does.

#include "capture/function/joint.h"

#include <vector>

namespace hindcast::codegen {

/// The joint program without the gradients of the primals for which `wants`, indexed by primal, is false. Ops that compute several
/// gradients (`output_mask`) compute only those that are read.
capture::Joint with_some_gradients(const capture::Joint& joint, const std::vector<bool>& wants);

}  // namespace hindcast::codegen
