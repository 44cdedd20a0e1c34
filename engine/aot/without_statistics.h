#pragma once
// Batch norm in training updates its running mean and variance, and no derivative depends on them.

#include "capture/function/joint.h"

namespace hindcast::engine {

/// The joint program with gradients that do not read running statistics: a derived program then needs neither their former contents, which
/// the call has overwritten, nor an operator that updates them, which has no derivative. What the function writes is computed as before.
capture::Joint without_running_statistics(const capture::Joint& joint);

}  // namespace hindcast::engine
