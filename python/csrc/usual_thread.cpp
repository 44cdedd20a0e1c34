#include "python/csrc/usual_thread.h"

#include "python/csrc/objects.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/functorch/DynamicLayer.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace hindcast::python {
namespace {

// The module is only imported by programs that use it.
bool is_compiled_autograd_on() {
  static Object* const name = interned("torch._dynamo.compiled_autograd");
  static Object* const flags[] = {interned("compiled_autograd_enabled"), interned("in_compiled_autograd_region")};
  Object* const module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (module == nullptr) return false;
  Object* const globals = PyModule_GetDict(module);
  if (globals == nullptr) {
    PyErr_Clear();
    return true;  // unexpected: leave it to Python
  }
  for (Object* const flag : flags) {
    Object* const value = PyDict_GetItemWithError(globals, flag);
    if (value == nullptr || !is_false(value)) return true;
  }
  return false;
}

// True for a mode that only supplies a default device to tensor factory functions.
bool sets_default_device(Object* mode) {
  static Object* const module_name = interned("torch.utils._device");
  static Object* const class_name = interned("DeviceContext");
  Object* const module = PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name);
  Object* const globals = module == nullptr ? nullptr : PyModule_GetDict(module);
  if (globals == nullptr) {
    PyErr_Clear();
    return false;
  }
  return type_of(mode) == PyDict_GetItemWithError(globals, class_name);
}

// nullptr if no default device is set, or if the thread has other torch-function modes.
Object* mode_of_default_device() {
  using Modes = at::impl::PythonTorchFunctionTLS;
  if (Modes::stack_len() != 1) return nullptr;
  const auto& mode = Modes::get_stack_at(0);
  Object* const object = mode->ptr(&mode->pyinterpreter());
  return sets_default_device(object) ? object : nullptr;
}

}  // namespace

Reference default_device() {
  static Object* const name = interned("device");
  Object* const mode = mode_of_default_device();
  return mode == nullptr ? Reference() : Reference::of_new(PyObject_GetAttr(mode, name));
}

bool are_equal_devices(const Reference& a, const Reference& b) {
  if (!a || !b) return !a && !b;
  constexpr int kEqual = 2;  // Py_EQ
  return PyObject_RichCompareBool(a.get(), b.get(), kEqual) == 1;
}

bool is_usual_thread() {
  return (at::impl::PythonTorchFunctionTLS::stack_len() == 0 || mode_of_default_device() != nullptr) &&
         at::impl::PythonTorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED &&
         c10::impl::TorchDispatchModeTLS::stack_len() == 0 && !at::functorch::maybeCurrentDynamicLayer().has_value() &&
         !torch::jit::tracer::isTracing() && !is_compiled_autograd_on();
}

}  // namespace hindcast::python
