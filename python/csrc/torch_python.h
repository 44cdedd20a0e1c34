#pragma once
// Tensors and errors between C++ and Python, by what libtorch_python exports. LibTorch's headers for it include all of Python's.

#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>

#include <exception>

namespace hindcast::python {

/// Looks for what it needs, and whether a tensor's object begins as it is known to. False: torch is built otherwise. Called once, with the GIL.
bool find_torch_python();

/// Of class Tensor or Parameter itself.
bool is_plain_tensor(Object* object);
/// Of such an object, for as long as it lives.
inline const at::Tensor& tensor_of(Object* object) { return *reinterpret_cast<const at::Tensor*>(reinterpret_cast<Object**>(object) + 2); }
/// A new reference: the tensor's own object, where it has one. None for an undefined tensor.
Object* object_of(const at::Tensor& tensor);

/// Sets Python's error to what this C++ exception is there, and returns null.
Object* raise(const std::exception_ptr& error);
/// A RuntimeError.
Object* raise_text(const char* text);

/// A method whose C++ exceptions are raised in Python.
template <auto method>
Object* guarded(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  try {
    return method(self, arguments, count);
  } catch (...) {
    return raise(std::current_exception());
  }
}

}  // namespace hindcast::python
