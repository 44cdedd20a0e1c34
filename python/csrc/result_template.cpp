#include "python/csrc/result_template.h"

#include "python/csrc/torch_python.h"

#include <string_view>

namespace hindcast::python {

ResultTemplate ResultTemplate::of(Object* described) {
  ResultTemplate made;
  if (is_none(described)) return made;
  const std::string_view kind = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(described, 0), nullptr);
  Object* const content = PyTuple_GetItem(described, 1);
  if (kind == "value") {
    made.kind_ = Kind::Value;
    made.value_ = Reference::of_borrowed(content);
    return made;
  }
  made.kind_ = kind == "tuple" ? Kind::Tuple : kind == "list" ? Kind::List : Kind::Dict;
  for (std::ptrdiff_t i = 0; i < PyList_Size(content); ++i) made.parts_.push_back(of(PyList_GetItem(content, i)));
  if (made.kind_ != Kind::Dict) return made;
  Object* const keys = PyTuple_GetItem(described, 2);
  for (std::ptrdiff_t i = 0; i < PyList_Size(keys); ++i) made.keys_.push_back(Reference::of_borrowed(PyList_GetItem(keys, i)));
  return made;
}

Object* ResultTemplate::make(const std::vector<at::Tensor>& tensors) const {
  size_t next = 0;
  return make_next(tensors, next);
}

Object* ResultTemplate::make_next(const std::vector<at::Tensor>& tensors, size_t& next) const {
  if (kind_ == Kind::Tensor) return object_of(tensors.at(next++));
  if (kind_ == Kind::Value) return new_reference(value_.get());
  const auto count = static_cast<std::ptrdiff_t>(parts_.size());
  Reference made = Reference::of_new(kind_ == Kind::Tuple ? PyTuple_New(count) : kind_ == Kind::List ? PyList_New(count) : PyDict_New());
  if (!made) return nullptr;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Reference part = Reference::of_new(parts_[i].make_next(tensors, next));
    if (!part) return nullptr;
    const auto place = static_cast<std::ptrdiff_t>(i);
    if (kind_ == Kind::Tuple) {
      PyTuple_SetItem(made.get(), place, part.release());
    } else if (kind_ == Kind::List) {
      PyList_SetItem(made.get(), place, part.release());
    } else if (PyDict_SetItem(made.get(), keys_[i].get(), part.get()) != 0) {
      return nullptr;
    }
  }
  return made.release();
}

}  // namespace hindcast::python
