#pragma once
// An optimizer's step, split into its host and device parts, so that a CUDA graph can replay the device part.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hindcast {
class CompiledStep;
}

namespace hindcast::detail {

/// The factor that one step multiplied gradients by, on the device. Undefined if nothing was clipped.
struct StepFactor {
  at::Tensor norm, factor, factor_as_float;
};

class StepParts {
 public:
  virtual ~StepParts() = default;

  /// The last step's factor.
  virtual StepFactor factor() const = 0;
  /// Prepares the updates of all parameters that have a gradient; the kernels multiply gradients by `factor`. Returns false, with nothing
  /// changed, if kernels cannot do one of the updates.
  virtual bool gather(const StepFactor& factor) = 0;
  /// Launches the kernels of the gathered updates. Returns false if some were not launched; the caller then undoes the step.
  virtual bool run() = 0;
  /// Drops references to `factor`, before its memory is freed.
  virtual void let_go(const StepFactor& factor) = 0;
  /// True if a step in which these parameters have gradients would allocate optimizer state.
  virtual bool makes_state(const std::vector<at::Tensor>& updated) = 0;
  /// Undoes the counts of the last step, whose kernels did not run.
  virtual void take_back() = 0;
  /// How many parameters were updated so far, by kernels and by the optimizer's own code.
  virtual uint64_t compiled() const = 0;
  virtual uint64_t original() const = 0;

  static StepParts& of(CompiledStep& step);
};

}  // namespace hindcast::detail
