#pragma once
// Converts tensors and errors between C++ and Python with symbols exported by libtorch_python, since LibTorch's headers for that include
// Python's.

#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>

#include <exception>

namespace hindcast::python {

/// Finds the symbols, and checks the layout of a tensor's Python object. Returns false if this build of torch differs. Call it once, with
/// the GIL.
bool find_torch_python();

/// True if the class is exactly Tensor or Parameter.
bool is_plain_tensor(Object* object);
/// The tensor in such an object, valid while the object lives.
inline const at::Tensor& tensor_of(Object* object) { return *reinterpret_cast<const at::Tensor*>(reinterpret_cast<Object**>(object) + 2); }
/// A new reference: the tensor's existing Python object if it has one. None for an undefined tensor.
Object* object_of(const at::Tensor& tensor);

/// Sets Python's error to the equivalent of this C++ exception, and returns nullptr.
Object* raise(const std::exception_ptr& error);
/// Sets a RuntimeError, and returns nullptr.
Object* raise_text(const char* text);

/// Wraps a method so that its C++ exceptions are raised in Python.
template <auto method>
Object* guarded(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  try {
    return method(self, arguments, count);
  } catch (...) {
    return raise(std::current_exception());
  }
}

}  // namespace hindcast::python
