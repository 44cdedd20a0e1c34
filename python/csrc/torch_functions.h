#pragma once
// Whether Python's torch functions are on: an operator is called with them off, what it calls in Python has them as they were.

#include <ATen/PythonTorchFunctionTLS.h>

namespace hindcast::python {

/// Sets what Python's torch functions do on this thread, for as long as it lives.
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
