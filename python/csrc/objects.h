#pragma once
// RAII for Python objects in C++: references, and the GIL.

#include "python/csrc/cpython.h"

#include <utility>

namespace hindcast::python {

/// Owns a reference. Create and destroy it with the GIL held.
class Reference {
 public:
  Reference() = default;
  /// Takes ownership of a new reference, as returned by a call.
  static Reference of_new(Object* object) { return Reference(object); }
  static Reference of_borrowed(Object* object) {
    Py_IncRef(object);
    return Reference(object);
  }
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Reference() {
    if (object_ != nullptr) Py_DecRef(object_);
  }

  Object* get() const { return object_; }
  Object* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Reference(Object* object) : object_(object) {}
  Object* object_ = nullptr;
};

/// Fetches and clears the Python error that is set. Create and destroy it with the GIL held.
class FetchedError {
 public:
  FetchedError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  FetchedError(const FetchedError&) = delete;
  FetchedError& operator=(const FetchedError&) = delete;
  ~FetchedError() {
    for (Object* const part : {type_, value_, traceback_}) {
      if (part != nullptr) Py_DecRef(part);
    }
  }
  void set_again() { PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr), std::exchange(traceback_, nullptr)); }

 private:
  Object *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

/// Releases the GIL while it lives.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  _ts* const thread_;
};

class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const int state_;
};

// An object begins with its reference count and its type, in the stable ABI too.
inline Object* type_of(Object* object) { return reinterpret_cast<Object**>(object)[1]; }

inline Object* none() { return &_Py_NoneStruct; }
inline bool is_none(Object* object) { return object == &_Py_NoneStruct; }
inline bool is_false(Object* object) { return object == &_Py_FalseStruct; }
inline bool is_true(Object* object) { return object == &_Py_TrueStruct; }

inline bool is_tuple(Object* object) { return type_of(object) == &PyTuple_Type; }
inline bool is_list(Object* object) { return type_of(object) == &PyList_Type; }
inline bool is_dict(Object* object) { return type_of(object) == &PyDict_Type; }

constexpr int kEqual = 2;  // Py_EQ

/// An interned string that is never freed.
inline Object* interned(const char* text) { return PyUnicode_InternFromString(text); }

inline Object* new_reference(Object* object) {
  Py_IncRef(object);
  return object;
}

}  // namespace hindcast::python
