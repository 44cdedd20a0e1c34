#pragma once
// Sets whether Python's torch functions are on: operators are called with them off, but Python code that they call needs the caller's
// state.

#include <ATen/PythonTorchFunctionTLS.h>

namespace hindcast::python {

/// Sets this thread's torch-function state while it lives.
class TorchFunctions {
 public:
  explicit TorchFunctions(at::impl::TorchFunctionDisabledState state) : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(state);
  }
  ~TorchFunctions() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  TorchFunctions(const TorchFunctions&) = delete;
  TorchFunctions& operator=(const TorchFunctions&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

}  // namespace hindcast::python
