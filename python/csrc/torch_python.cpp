#include "python/csrc/torch_python.h"

#include <ATen/EmptyTensor.h>

#include <dlfcn.h>

#include <exception>

namespace hindcast::python {
namespace {

struct TorchPython {
  Object* (*wrap)(const at::TensorBase&) = nullptr;
  void (*translate)(const std::exception_ptr&) = nullptr;
  Object* tensor_class = nullptr;
  Object* parameter_class = nullptr;
};
TorchPython torch_python;

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_class(void* library, const char* name, Object*& found) {
  const auto* const place = static_cast<Object* const*>(dlsym(library, name));
  if (place != nullptr) found = *place;
  return found != nullptr;
}

bool begins_as_known() {
  const at::Tensor tensor(at::detail::empty_cpu({0}, at::kFloat));
  const Reference object = Reference::of_new(torch_python.wrap(tensor));
  if (!object || type_of(object.get()) != torch_python.tensor_class) return false;
  return reinterpret_cast<void**>(object.get())[2] == tensor.unsafeGetTensorImpl();
}

}  // namespace

bool find_torch_python() {
  void* const library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  return find(library, "_Z16THPVariable_WrapRKN2at10TensorBaseE", torch_python.wrap) &&
         find(library, "_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE", torch_python.translate) &&
         find_class(library, "THPVariableClass", torch_python.tensor_class) &&
         find_class(library, "ParameterClass", torch_python.parameter_class) && begins_as_known();
}

bool is_plain_tensor(Object* object) {
  Object* const type = type_of(object);
  return type == torch_python.tensor_class || type == torch_python.parameter_class;
}

Object* object_of(const at::Tensor& tensor) { return torch_python.wrap(tensor); }

Object* raise(const std::exception_ptr& error) {
  torch_python.translate(error);
  return nullptr;
}

Object* raise_text(const char* text) {
  PyErr_SetString(PyExc_RuntimeError, text);
  return nullptr;
}

}  // namespace hindcast::python
