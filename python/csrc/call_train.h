#pragma once
// The usual case of hindcast/_train.py's step: loss and gradients are a program that is known, then the optimizer's update.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// train_plan(all, trained): a list of the optimizer's parameters, and of those that get gradients. It refers to them as long as they are
/// somebody else's.
Object* make_train_plan(Object*, Object* const* arguments, std::ptrdiff_t count);

/// train_recorder(optimizer, clip, bytes): of steps as CUDA graphs, which keep at most so many bytes of device memory. `clip`: None or
/// (max_norm, norm_type). It refers to the optimizer, which outlives it.
Object* make_train_recorder(Object*, Object* const* arguments, std::ptrdiff_t count);
/// train_recorder_stats(recorder) -> (launches, bytes, why the last step that was not recorded was not).
Object* train_recorder_stats(Object*, Object* const* arguments, std::ptrdiff_t count);

/// train(step, plan, optimizer, function, its call, update, keeps_gradients, args, kwargs, not_known, recorder): the result, or `not_known`, when
/// nothing was done. `step`, `function`, `update`: hindcast's TrainStep, AotFunction, CompiledStep. `recorder`: or None.
Object* train(Object*, Object* const* arguments, std::ptrdiff_t count);

}  // namespace hindcast::python
