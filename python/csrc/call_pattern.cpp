#include "python/csrc/call_pattern.h"

#include "engine/aot/repeated_inputs.h"
#include "engine/call_state.h"
#include "python/csrc/torch_python.h"

#include <algorithm>
#include <cstring>

namespace hindcast::python {
namespace {

bool list_has(Object* list, Object* object) {
  for (std::ptrdiff_t i = 0; i < PyList_Size(list); ++i) {
    if (PyList_GetItem(list, i) == object) return true;
  }
  return false;
}

// Stricter than Python's ==: 1, 1.0 and True differ, and so do 0.0 and -0.0.
bool are_same_value(Object* a, Object* b) {
  if (a == b) return true;
  if (type_of(a) != type_of(b)) return false;
  if (type_of(a) == &PyFloat_Type) {
    const double first = PyFloat_AsDouble(a), second = PyFloat_AsDouble(b);
    return std::memcmp(&first, &second, sizeof(first)) == 0;
  }
  static Object* const complex_type = type_of(Reference::of_new(PyComplex_FromDoubles(0, 1)).get());
  if (type_of(a) == complex_type) return false;  // left to Python
  const int equal = PyObject_RichCompareBool(a, b, kEqual);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

}  // namespace

bool CallPattern::take(Object* args, Object* kwargs, std::vector<at::Tensor>& tensors) {
  const std::ptrdiff_t count = PyTuple_Size(args);
  tensors.reserve(static_cast<size_t>(count));
  parts_.push_back({Kind::Tuple, count});
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    if (!take_value(PyTuple_GetItem(args, i), tensors)) return false;
  }
  if (kwargs != nullptr && PyDict_Size(kwargs) != 0 && !take_dict(kwargs, tensors)) return false;
  containers_.clear();
  if (const std::vector<uint32_t> firsts = engine::find_repeated(tensors); !firsts.empty()) mark_shared(firsts);
  return true;
}

bool CallPattern::take_container(Object* container) {
  if (std::find(containers_.begin(), containers_.end(), container) != containers_.end()) return false;
  containers_.push_back(container);
  return true;
}

// A function that is given a tensor twice sees that it is one: such calls are of another kind.
void CallPattern::mark_shared(const std::vector<uint32_t>& firsts) {
  size_t place = 0;
  for (Part& part : parts_) {
    if (part.kind == Kind::Tensor) part.size = 1 + static_cast<std::ptrdiff_t>(firsts[place++]);
  }
}

bool CallPattern::take_dict(Object* dict, std::vector<at::Tensor>& tensors) {
  if (!take_container(dict)) return false;
  parts_.push_back({Kind::Dict, PyDict_Size(dict)});
  std::ptrdiff_t place = 0;
  Object *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict, &place, &key, &value) != 0) {
    if (type_of(key) != &PyUnicode_Type) return false;
    parts_.push_back({Kind::Name, 0, key});
    if (!take_value(value, tensors)) return false;
  }
  return true;
}

bool CallPattern::take_value(Object* value, std::vector<at::Tensor>& tensors) {
  constexpr size_t kMostParts = 1000;
  if (parts_.size() > kMostParts) return false;
  if (is_plain_tensor(value)) {
    const at::Tensor& tensor = tensor_of(value);
    if (engine::is_named(*tensor.unsafeGetTensorImpl())) return false;  // no operator takes one from Python
    tensors.push_back(tensor);
    parts_.push_back({Kind::Tensor, 0, type_of(value)});
    return true;
  }
  if (is_dict(value)) return take_dict(value, tensors);
  if (is_tuple(value)) {
    const std::ptrdiff_t count = PyTuple_Size(value);
    parts_.push_back({Kind::Tuple, count});
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      if (!take_value(PyTuple_GetItem(value, i), tensors)) return false;
    }
    return true;
  }
  if (is_list(value)) {
    if (!take_container(value)) return false;
    const std::ptrdiff_t count = PyList_Size(value);
    parts_.push_back({Kind::List, count});
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      if (!take_value(PyList_GetItem(value, i), tensors)) return false;
    }
    return true;
  }
  const int is_value = PySet_Contains(value_types_, type_of(value));
  if (is_value < 0) PyErr_Clear();
  parts_.push_back({is_value == 1 ? Kind::Value : Kind::Object, 0, value});
  return true;
}

bool CallPattern::keep(Object* objects) {
  for (const Part& part : parts_) {
    if (part.kind == Kind::Object && !list_has(objects, part.object)) return false;
    if (part.kind == Kind::Name || part.kind == Kind::Value) kept_.push_back(Reference::of_borrowed(part.object));
  }
  return true;
}

bool CallPattern::are_equal(const Part& a, const Part& b) {
  if (a.kind != b.kind || a.size != b.size) return false;
  return a.kind == Kind::Name || a.kind == Kind::Value ? are_same_value(a.object, b.object) : a.object == b.object;
}

bool CallPattern::equals(const CallPattern& other) const {
  return std::equal(parts_.begin(), parts_.end(), other.parts_.begin(), other.parts_.end(), &CallPattern::are_equal);
}

}  // namespace hindcast::python
