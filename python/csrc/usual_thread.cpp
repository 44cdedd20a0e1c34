#include "python/csrc/usual_thread.h"

#include "python/csrc/objects.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/functorch/DynamicLayer.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace hindcast::python {
namespace {

// The module is imported by who uses it.
bool is_compiled_autograd_on() {
  static Object* const name = interned("torch._dynamo.compiled_autograd");
  static Object* const flags[] = {interned("compiled_autograd_enabled"), interned("in_compiled_autograd_region")};
  Object* const module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (module == nullptr) return false;
  Object* const globals = PyModule_GetDict(module);
  if (globals == nullptr) {
    PyErr_Clear();
    return true;  // something else: Python looks
  }
  for (Object* const flag : flags) {
    Object* const value = PyDict_GetItemWithError(globals, flag);
    if (value == nullptr || !is_false(value)) return true;
  }
  return false;
}

}  // namespace

bool is_usual_thread() {
  return !at::impl::torch_function_mode_enabled() &&
         at::impl::PythonTorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED &&
         c10::impl::TorchDispatchModeTLS::stack_len() == 0 && !at::functorch::maybeCurrentDynamicLayer().has_value() &&
         !torch::jit::tracer::isTracing() && !is_compiled_autograd_on();
}

}  // namespace hindcast::python
