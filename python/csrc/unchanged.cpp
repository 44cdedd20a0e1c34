#include "python/csrc/unchanged.h"

#include "python/csrc/objects.h"
#include "python/csrc/torch_python.h"

#include <cstddef>
#include <cstring>

namespace hindcast::python {
namespace {

Object* object_at(int64_t word) { return reinterpret_cast<Object*>(word & ~int64_t{1}); }

bool equal(Object* object, Object* expected) {
  Object* const type = type_of(object);
  if (type != type_of(expected)) return false;
  if (type == &PyFloat_Type) {  // 0.0 differs from -0.0, and NaN equals itself
    const double a = PyFloat_AsDouble(object), b = PyFloat_AsDouble(expected);
    return std::memcmp(&a, &b, sizeof(a)) == 0;
  }
  return PyObject_RichCompareBool(object, expected, kEqual) == 1;
}

bool is(Object* object, int64_t entry) {
  if (object == object_at(entry)) return true;
  return object != nullptr && (entry & 1) != 0 && equal(object, object_at(entry));
}

// Compares a new reference, and releases it.
bool took(Object* object, int64_t entry) {
  const bool same = is(object, entry);
  if (object != nullptr) Py_DecRef(object);
  return same;
}

int64_t facts_of_tensor(Object* object) {
  const at::Tensor& tensor = tensor_of(object);
  const c10::Device device = tensor.device();
  return static_cast<int64_t>(tensor.scalar_type()) | int64_t{static_cast<uint8_t>(device.type())} << 8 |
         int64_t{static_cast<uint8_t>(device.index())} << 16 | int64_t{tensor.requires_grad()} << 24;
}

class Words {
 public:
  Words(const int64_t* words, int64_t count) : at_(words), end_(words + count) {}

  bool hold() {
    while (at_ != end_) {
      if (!next_holds()) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

 private:
  int64_t next() { return *at_++; }
  Object* next_object() { return object_at(next()); }

  bool next_holds() {
    const auto kind = static_cast<Watch>(next());
    Object* const object = next_object();
    switch (kind) {
      case Watch::Type:
        return type_of(object) == next_object();
      case Watch::OwnDict:
        return took(PyObject_GenericGetDict(object, nullptr), next());
      case Watch::Dict:
        return type_of(object) == next_object() && dict_holds(object);
      case Watch::Item: {
        Object* const key = next_object();
        return is(PyDict_GetItemWithError(object, key), next());
      }
      case Watch::Sequence:
        return type_of(object) == next_object() && sequence_holds(object);
      case Watch::Set:
        return set_holds(object);
      case Watch::Cell:
        return took(PyCell_Get(object), next());
      case Watch::Function: {
        const bool same_code = is(PyFunction_GetCode(object), next());
        const bool same_defaults = is(PyFunction_GetDefaults(object), next());
        return is(PyFunction_GetKwDefaults(object), next()) && same_code && same_defaults;
      }
      case Watch::Attribute: {
        Object* const name = next_object();
        Object* const value = PyObject_GenericGetAttr(object, name);
        if (value == nullptr) PyErr_Clear();
        return took(value, next());
      }
      case Watch::Size:
        return PyDict_Size(object) == next();
      case Watch::Tensor:
        return facts_of_tensor(object) == next();
    }
    return false;
  }

  bool dict_holds(Object* dict) {
    const int64_t size = next();
    if (PyDict_Size(dict) != size) return false;
    ptrdiff_t place = 0;
    Object *key = nullptr, *value = nullptr;
    for (int64_t i = 0; i < size; ++i) {
      if (PyDict_Next(dict, &place, &key, &value) == 0) return false;
      if (!is(key, next()) || !is(value, next())) return false;
    }
    return true;
  }

  bool sequence_holds(Object* sequence) {
    const int64_t size = next();
    if (PySequence_Size(sequence) != size) return false;
    for (int64_t i = 0; i < size; ++i) {
      if (!took(PySequence_GetItem(sequence, i), next())) return false;
    }
    return true;
  }

  bool set_holds(Object* set) {
    if (PySet_Size(set) != next()) return false;
    const int64_t count = next();
    for (int64_t i = 0; i < count; ++i) {
      if (PySet_Contains(set, next_object()) != 1) return false;
    }
    return true;
  }

  const int64_t* at_;
  const int64_t* const end_;
};

}  // namespace
}  // namespace hindcast::python

int hindcast_unchanged(const int64_t* words) { return words[0] != 0 && hindcast::python::Words(words + 1, words[0] - 1).hold() ? 1 : 0; }
int64_t hindcast_facts_of_tensor(void* tensor) { return hindcast::python::facts_of_tensor(static_cast<hindcast::python::Object*>(tensor)); }
