#pragma once
// The host's and the device's part of a compiled step, one by one: what a recording of the step needs.

#include "engine/optim/compiled_step.h"

#include <ATen/core/Tensor.h>

namespace hindcast::engine {

/// What one step multiplied gradients by, on the device. Undefined: nothing was clipped.
struct StepFactor {
  at::Tensor norm, factor, factor_as_float;
};

struct StepParts {
  static StepFactor factor_of(const CompiledStep& step);
  /// Counts a step of each parameter that has a gradient, and gathers the updates; the kernels multiply gradients by `factor`. False: kernels
  /// cannot make some update, and nothing has changed.
  static bool gather(CompiledStep& step, const StepFactor& factor);
  /// Launches the kernels of the gathered updates.
  static void run(CompiledStep& step);
  /// Drops the step's references to `factor`, before its memory is freed.
  static void let_go(CompiledStep& step, const StepFactor& factor);
  /// The next step would allocate a parameter's state.
  static bool makes_state(const CompiledStep& step);
  /// Undoes the counts of the last step, whose kernels did not run.
  static void take_back(CompiledStep& step);
};

}  // namespace hindcast::engine
