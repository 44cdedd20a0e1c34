#pragma once
// The function that hindcast._C installs as the engine's run_backward(): the fast path of one call from Python. It does what
// hindcast/_backward.py does, and calls that Python code in unusual cases.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs=(), allow_unreachable=False, accumulate_grad=False).
Object* run_backward_of_python(Object*, Object* const* arguments, std::ptrdiff_t count, Object* names);

/// set_backward(pytorchs, by_python, warn, warn_beside_an_error): PyTorch's own method; hindcast's Python method, which takes all seven
/// arguments and the call's start time; and the functions that emit what take_warnings() returns.
Object* set_backward(Object*, Object* const* arguments, std::ptrdiff_t count);
/// set_guard(options, is_disabled): the options of this thread's innermost guard; -1 if it has none.
Object* set_guard(Object*, Object* const* arguments, std::ptrdiff_t count);
/// set_process_guard(options, is_disabled): the same for threads without a guard.
Object* set_process_guard(Object*, Object* const* arguments, std::ptrdiff_t count);
/// leave_next(calls, are_not_faster): runs this many of the next calls under these options directly on PyTorch's engine; -1: the next one
/// is timed.
Object* leave_next(Object*, Object* const* arguments, std::ptrdiff_t count);
/// take_uncounted() -> (disabled, left, left because PyTorch's engine is faster): numbers of this thread's calls since the last take.
Object* take_uncounted(Object*, Object* const* arguments, std::ptrdiff_t count);

}  // namespace hindcast::python
