#pragma once
// Python capsules that own C++ objects, which are destroyed with the capsule.

#include "python/csrc/objects.h"

namespace hindcast::python {

template <class T>
constexpr const char* kCapsuleName = "hindcast._C";

/// Owns `object`. Call it with the GIL.
template <class T>
Reference capsule_of(T* object) {
  return Reference::of_new(PyCapsule_New(object, kCapsuleName<T>,
                                         [](Object* capsule) { delete static_cast<T*>(PyCapsule_GetPointer(capsule, kCapsuleName<T>)); }));
}

template <class T>
T& in_capsule(Object* capsule) {
  return *static_cast<T*>(PyCapsule_GetPointer(capsule, kCapsuleName<T>));
}

}  // namespace hindcast::python
