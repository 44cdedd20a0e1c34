#pragma once
// The usual case of hindcast/_optim.py's step: an optimizer with its state made, and nothing that looks on.

#include "engine/optim/step_parts.h"
#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::python {

/// know_optimizers({class: number}, hooks of all optimizers, the dict in which torch.compiler says that it compiles). Numbers are OptimizerClass.
Object* know_optimizers(Object*, Object* const* arguments, std::ptrdiff_t count);
enum class OptimizerClass : int { Sgd, Adam, RmsProp, Adagrad };

/// step(step, optimizer, clip, is_checked) -> bool. `step`: hindcast._optim's. `clip`: None or (max_norm, norm_type). `is_checked`: the optimizer
/// looks whether a graph of the accelerator is captured. False: nothing was done, and Python's code makes the step.
Object* step_optimizer(Object*, Object* const* arguments, std::ptrdiff_t count);

/// max_norm and norm_type.
using Clip = std::optional<std::array<double, 2>>;
/// Of None or a tuple of the two.
Clip clip_of(Object* given);

/// The step of an optimizer in Python, as a recording needs it. All is called with the GIL.
class OptimizerStep : public engine::StepParts {
 public:
  /// Clips, and updates all parameters that have a gradient. Throws base::Unsupported where kernels do not do all of it.
  virtual void step() = 0;
  /// Tells hindcast/_optim.py's step of one that step(), or run() and a launch, has made. False: Python's error is set.
  virtual bool tell(Object* step) = 0;
};
/// Refers to `optimizer`, which outlives it.
std::unique_ptr<OptimizerStep> optimizer_step(Object* optimizer, Clip clip);

/// Python's lists of an optimizer's parameters, as its class keeps them. Null, without an error: they are not as usual.
Object* parameter_groups_of(Object* optimizer);
/// Of one of these groups: a list. Null, without an error: the same.
Object* parameters_of_group(Object* group);

}  // namespace hindcast::python
