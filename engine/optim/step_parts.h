#pragma once
// The host's and the device's part of an optimizer's step, one by one: what a recording of the step needs.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hindcast {
class CompiledStep;
}

namespace hindcast::engine {

/// What one step multiplied gradients by, on the device. Undefined: nothing was clipped.
struct StepFactor {
  at::Tensor norm, factor, factor_as_float;
};

class StepParts {
 public:
  virtual ~StepParts() = default;

  /// Of the last step.
  virtual StepFactor factor() const = 0;
  /// Prepares the updates of all parameters that have a gradient; the kernels multiply gradients by `factor`. False: kernels cannot make
  /// some update, and nothing has changed.
  virtual bool gather(const StepFactor& factor) = 0;
  /// Launches the kernels of the gathered updates. False: not all of them, and the caller takes the step back.
  virtual bool run() = 0;
  /// Drops references to `factor`, before its memory is freed.
  virtual void let_go(const StepFactor& factor) = 0;
  /// A step in which these parameters have gradients would allocate state of one.
  virtual bool makes_state(const std::vector<at::Tensor>& updated) = 0;
  /// Undoes the counts of the last step, whose kernels did not run.
  virtual void take_back() = 0;
  /// Parameters that were updated so far: by kernels, and by the optimizer's own code.
  virtual uint64_t compiled() const = 0;
  virtual uint64_t original() const = 0;

  static StepParts& of(CompiledStep& step);
};

}  // namespace hindcast::engine
