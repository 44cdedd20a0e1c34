#pragma once
// The usual case of hindcast/_optim.py's step: an optimizer with its state made, and nothing that looks on.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// know_optimizers({class: number}, hooks of all optimizers, the dict in which torch.compiler says that it compiles). Numbers are OptimizerClass.
Object* know_optimizers(Object*, Object* const* arguments, std::ptrdiff_t count);
enum class OptimizerClass : int { Sgd, Adam, RmsProp, Adagrad };

/// step(step, optimizer, clip, is_checked) -> bool. `step`: hindcast._optim's. `clip`: None or (max_norm, norm_type). `is_checked`: the optimizer
/// looks whether a graph of the accelerator is captured. False: nothing was done, and Python's code makes the step.
Object* step_optimizer(Object*, Object* const* arguments, std::ptrdiff_t count);

/// Python's lists of an optimizer's parameters, as its class keeps them. Null, without an error: they are not as usual.
Object* parameter_groups_of(Object* optimizer);
/// Of one of these groups: a list. Null, without an error: the same.
Object* parameters_of_group(Object* group);

}  // namespace hindcast::python
