#pragma once
// The host's part of a compiled step without the device's, and what a step multiplied gradients by: for who has recorded the device's part.

#include "engine/optim/compiled_step.h"

#include <ATen/core/Tensor.h>

namespace hindcast::engine {

/// Of one step, on the device; undefined: nothing was clipped.
struct StepFactor {
  at::Tensor norm, factor, factor_as_float;
};

struct StepParts {
  static StepFactor factor_of(const CompiledStep& step);
  /// Counts a step of each parameter that has a gradient, and gathers its updates, whose gradients this factor multiplies. False: some are
  /// not made by kernels; nothing has changed.
  static bool gather(CompiledStep& step, const StepFactor& factor);
  /// Gives the kernels of what was gathered.
  static void run(CompiledStep& step);
  /// Holds nothing of this factor any more, whose memory goes.
  static void let_go(CompiledStep& step, const StepFactor& factor);
  /// The next step makes state of a parameter.
  static bool makes_state(const CompiledStep& step);
  /// What the last step counted, it did not do.
  static void take_back(CompiledStep& step);
};

}  // namespace hindcast::engine
