#pragma once
// The fast path of hindcast/_optim.py's step: an optimizer whose state exists, without hooks or other observers.

#include "engine/optim/step_parts.h"
#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::python {

/// know_optimizers({class: number}, global optimizer hooks, the dict in which torch.compiler marks that it is compiling). The numbers are
/// those of OptimizerClass.
Object* know_optimizers(Object*, Object* const* arguments, std::ptrdiff_t count);
enum class OptimizerClass : int { Sgd, Adam, RmsProp, Adagrad };

/// step(step, optimizer, clip, is_checked) -> bool. `step`: hindcast._optim's. `clip`: None or (max_norm, norm_type). `is_checked`: the
/// optimizer checks whether a CUDA graph is being captured. Returns False, before any effect, if the Python code must make the step.
Object* step_optimizer(Object*, Object* const* arguments, std::ptrdiff_t count);

/// max_norm and norm_type.
using Clip = std::optional<std::array<double, 2>>;
/// Reads None or a tuple of the two.
Clip clip_of(Object* given);

/// The step of a Python optimizer, for CUDA graphs of training steps. All methods need the GIL.
class OptimizerStep : public detail::StepParts {
 public:
  /// Clips, and updates all parameters that have a gradient. Throws base::Unsupported if kernels cannot do all of it.
  virtual void step() = 0;
  /// Reports to hindcast/_optim.py's step that step(), or run() and a launch, has made one. Returns false if Python's error is set.
  virtual bool tell(Object* step) = 0;
};
/// `optimizer` must outlive the result.
std::unique_ptr<OptimizerStep> optimizer_step(Object* optimizer, Clip clip);

/// The optimizer's Python list of parameter groups. nullptr, without an error, if it is not as the class makes it.
Object* parameter_groups_of(Object* optimizer);
/// The list of a group's parameters. nullptr, without an error, in the same case.
Object* parameters_of_group(Object* group);

}  // namespace hindcast::python
