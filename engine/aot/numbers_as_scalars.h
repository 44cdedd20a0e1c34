#pragma once
// Numbers in a program that were tensors to ATen.

#include "capture/function/joint.h"

namespace hindcast::engine {

/// `joint` with mul.Scalar(x, 3) in the place of what ATen makes of `x * 3`, a tensor of the number and mul.Tensor: an argument may become
/// an expression of sizes. Of integers alone.
capture::Joint with_numbers_as_scalars(const capture::Joint& joint);

}  // namespace hindcast::engine
