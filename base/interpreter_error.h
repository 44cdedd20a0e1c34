#pragma once
// Errors of an interpreter, which are exceptions in C++ and a state of the thread at the same time.

namespace hindcast::base {

/// To be called where an exception of autograd's engine is caught and not thrown again: torch's engine for Python also sets it as Python's
/// current error, which the next call into Python would report as its own.
void forget_interpreter_error();

/// What forget_interpreter_error() calls.
void forget_interpreter_error_by(void (*forget)());

}  // namespace hindcast::base
