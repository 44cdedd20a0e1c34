#pragma once
// What hindcast._C puts in the place of the engine's run_backward(): one call from Python. It does what hindcast/_backward.py does, which is
// called where something is unusual.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs=(), allow_unreachable=False, accumulate_grad=False).
Object* run_backward_of_python(Object*, Object* const* arguments, std::ptrdiff_t count, Object* names);

/// set_backward(pytorchs, by_python, warn, warn_beside_an_error): PyTorch's own method; Python's, which takes all seven arguments and when
/// the call started; and the functions that take_warnings().
Object* set_backward(Object*, Object* const* arguments, std::ptrdiff_t count);
/// set_guard(options, is_disabled): of this thread's innermost guard; -1: it has none.
Object* set_guard(Object*, Object* const* arguments, std::ptrdiff_t count);
/// set_process_guard(options, is_disabled): the same for threads that have none.
Object* set_process_guard(Object*, Object* const* arguments, std::ptrdiff_t count);
/// leave_next(calls, are_not_faster): so many calls to come under these options are PyTorch's, unseen; -1: the next one is timed.
Object* leave_next(Object*, Object* const* arguments, std::ptrdiff_t count);
/// take_uncounted() -> (disabled, left, left since PyTorch's engine is faster): calls of this thread since the last time.
Object* take_uncounted(Object*, Object* const* arguments, std::ptrdiff_t count);

}  // namespace hindcast::python
