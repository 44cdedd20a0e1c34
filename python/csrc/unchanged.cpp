#include "python/csrc/unchanged.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

namespace hindcast::python {
namespace {

struct Object;  // CPython's

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// Functions with these names and types have been in each Python since 3.2, the lookup of a __dict__ since 3.3.
struct Api {
  void (*release)(Object*);
  Object* (*type)(Object*);
  Object* (*own_dict)(Object*, void*);
  int (*dict_next)(Object*, ptrdiff_t*, Object**, Object**);
  ptrdiff_t (*dict_size)(Object*);
  Object* (*dict_item)(Object*, Object*);
  ptrdiff_t (*sequence_size)(Object*);
  Object* (*sequence_item)(Object*, ptrdiff_t);
  ptrdiff_t (*set_size)(Object*);
  int (*set_contains)(Object*, Object*);
  Object* (*cell_get)(Object*);
  Object* (*code)(Object*);
  Object* (*defaults)(Object*);
  Object* (*keyword_defaults)(Object*);
  Object* (*attribute)(Object*, Object*);
  int (*compare)(Object*, Object*, int);
  double (*number)(Object*);
  void (*clear_error)();
  Object* float_type;

  Api() {
    find(release, "Py_DecRef");
    find(type, "PyObject_Type");
    find(own_dict, "PyObject_GenericGetDict");
    find(dict_next, "PyDict_Next");
    find(dict_size, "PyDict_Size");
    find(dict_item, "PyDict_GetItemWithError");
    find(sequence_size, "PySequence_Size");
    find(sequence_item, "PySequence_GetItem");
    find(set_size, "PySet_Size");
    find(set_contains, "PySet_Contains");
    find(cell_get, "PyCell_Get");
    find(code, "PyFunction_GetCode");
    find(defaults, "PyFunction_GetDefaults");
    find(keyword_defaults, "PyFunction_GetKwDefaults");
    find(attribute, "PyObject_GenericGetAttr");
    find(compare, "PyObject_RichCompareBool");
    find(number, "PyFloat_AsDouble");
    find(clear_error, "PyErr_Clear");
    find(float_type, "PyFloat_Type");
  }
};
const Api& api() {
  static const Api api;
  return api;
}

Object* object_of(int64_t word) { return reinterpret_cast<Object*>(word & ~int64_t{1}); }

// Types live as long as one of their objects: the address is enough.
Object* type_of(Object* object) {
  Object* const type = api().type(object);
  api().release(type);
  return type;
}

bool equal(Object* object, Object* expected) {
  Object* const type = type_of(object);
  if (type != type_of(expected)) return false;
  if (type == api().float_type) {  // 0.0 is not -0.0, and a NaN is itself
    const double a = api().number(object), b = api().number(expected);
    return std::memcmp(&a, &b, sizeof(a)) == 0;
  }
  constexpr int kEqual = 2;  // Py_EQ
  return api().compare(object, expected, kEqual) == 1;
}

bool is(Object* object, int64_t entry) {
  if (object == object_of(entry)) return true;
  return object != nullptr && (entry & 1) != 0 && equal(object, object_of(entry));
}

// What a call gave as a new reference.
bool took(Object* object, int64_t entry) {
  const bool same = is(object, entry);
  if (object != nullptr) api().release(object);
  return same;
}

class Words {
 public:
  Words(const int64_t* words, int64_t count) : at_(words), end_(words + count) {}

  bool hold() {
    while (at_ != end_) {
      if (!next_holds()) {
        api().clear_error();
        return false;
      }
    }
    return true;
  }

 private:
  int64_t next() { return *at_++; }
  Object* next_object() { return object_of(next()); }

  bool next_holds() {
    const auto kind = static_cast<Watch>(next());
    Object* const object = next_object();
    switch (kind) {
      case Watch::Type:
        return type_of(object) == next_object();
      case Watch::OwnDict:
        return took(api().own_dict(object, nullptr), next());
      case Watch::Dict:
        return type_of(object) == next_object() && dict_holds(object);
      case Watch::Item: {
        Object* const key = next_object();
        return is(api().dict_item(object, key), next());
      }
      case Watch::Sequence:
        return type_of(object) == next_object() && sequence_holds(object);
      case Watch::Set:
        return set_holds(object);
      case Watch::Cell:
        return took(api().cell_get(object), next());
      case Watch::Function: {
        const bool same_code = is(api().code(object), next());
        const bool same_defaults = is(api().defaults(object), next());
        return is(api().keyword_defaults(object), next()) && same_code && same_defaults;
      }
      case Watch::Attribute: {
        Object* const name = next_object();
        Object* const value = api().attribute(object, name);
        if (value == nullptr) api().clear_error();
        return took(value, next());
      }
    }
    return false;
  }

  bool dict_holds(Object* dict) {
    const int64_t size = next();
    if (api().dict_size(dict) != size) return false;
    ptrdiff_t place = 0;
    Object *key = nullptr, *value = nullptr;
    for (int64_t i = 0; i < size; ++i) {
      if (api().dict_next(dict, &place, &key, &value) == 0) return false;
      if (!is(key, next()) || !is(value, next())) return false;
    }
    return true;
  }

  bool sequence_holds(Object* sequence) {
    const int64_t size = next();
    if (api().sequence_size(sequence) != size) return false;
    for (int64_t i = 0; i < size; ++i) {
      if (!took(api().sequence_item(sequence, i), next())) return false;
    }
    return true;
  }

  bool set_holds(Object* set) {
    if (api().set_size(set) != next()) return false;
    const int64_t count = next();
    for (int64_t i = 0; i < count; ++i) {
      if (api().set_contains(set, next_object()) != 1) return false;
    }
    return true;
  }

  const int64_t* at_;
  const int64_t* const end_;
};

}  // namespace
}  // namespace hindcast::python

int hindcast_unchanged(const int64_t* words) { return words[0] != 0 && hindcast::python::Words(words + 1, words[0] - 1).hold() ? 1 : 0; }
