#pragma once
// The fast path of hindcast/_train.py's step: a known program for loss and gradients, then the optimizer's update.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// train_plan(all, trained): from lists of the optimizer's parameters and of those that get gradients. Does not keep them alive.
Object* make_train_plan(Object*, Object* const* arguments, std::ptrdiff_t count);

/// separate_gradients(list): replaces gradients that share memory with an earlier one by copies. None and subclasses are left.
Object* separate_gradients(Object*, Object* const* arguments, std::ptrdiff_t count);

/// train_recorder(optimizer, clip, bytes): runs steps as CUDA graphs, which keep at most `bytes` of device memory. `clip`: None or
/// (max_norm, norm_type). The optimizer must outlive it.
Object* make_train_recorder(Object*, Object* const* arguments, std::ptrdiff_t count);
/// train_recorder_stats(recorder) -> (launches, bytes, why the last step without a CUDA graph had none).
Object* train_recorder_stats(Object*, Object* const* arguments, std::ptrdiff_t count);

/// train(step, plan, optimizer, function, its call, update, keeps_gradients, args, kwargs, not_known, recorder): the result, or `not_known`
/// if nothing was done. `step`, `function`, `update`: hindcast's TrainStep, AotFunction, CompiledStep. `recorder` may be None.
Object* train(Object*, Object* const* arguments, std::ptrdiff_t count);

}  // namespace hindcast::python
