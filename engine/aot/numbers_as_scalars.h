#pragma once
// Undoes ATen's conversion of integers to tensors in a traced program.

#include "capture/function/joint.h"

namespace hindcast::engine {

/// Returns `joint` with mul.Scalar(x, 3) where ATen turned `x * 3` into a tensor and mul.Tensor, so that the number can become an
/// expression of sizes. Integers only.
capture::Joint with_numbers_as_scalars(const capture::Joint& joint);

}  // namespace hindcast::engine
