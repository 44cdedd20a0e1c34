#include "hindcast/detail/script_values.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <algorithm>

namespace hindcast::detail {
namespace {

enum class Kind : char { None, Tensor, Bool, Int, Double, Complex, String, Device, List, Tuple, Dict, Other };

Kind kind_of(const c10::IValue& value) {
  if (value.isTensor()) return Kind::Tensor;
  if (value.isNone()) return Kind::None;
  if (value.isBool()) return Kind::Bool;
  if (value.isInt()) return Kind::Int;
  if (value.isDouble()) return Kind::Double;
  if (value.isComplexDouble()) return Kind::Complex;
  if (value.isString()) return Kind::String;
  if (value.isDevice()) return Kind::Device;
  if (value.isTuple()) return Kind::Tuple;
  if (value.isList()) return Kind::List;
  if (value.isGenericDict()) return Kind::Dict;
  return Kind::Other;
}

template <class T>
void fact(const T& plain, const ValueVisitor& with) {
  with.fact(&plain, sizeof(plain));
}

void visit_list(c10::IValue& value, const ValueVisitor& with) {
  c10::List<c10::IValue> list = value.toList();
  fact(list.size(), with);
  if (with.replaces_tensors) {
    list = list.copy();
    value = list;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    c10::IValue item = list.get(i);
    visit(item, with);
    if (with.replaces_tensors) list.set(i, std::move(item));
  }
}

bool is_undefined(const c10::IValue& value) { return value.isTensor() && !value.toTensor().defined(); }

void visit_tuple(c10::IValue& value, const ValueVisitor& with) {
  const auto tuple = value.toTuple();
  const auto& elements = tuple->elements();
  fact(elements.size(), with);
  std::vector<c10::IValue> items(elements.begin(), elements.end());
  for (c10::IValue& item : items) visit(item, with);
  if (!with.replaces_tensors) return;
  // Keeps a named tuple's type. The type of another one is that of its elements, which the query below would derive: undefined tensors have
  // none, so a tuple of these gets a type that says nothing.
  auto type = tuple->type<c10::TupleType>();
  if (!type->schema()) {
    const bool has_undefined = std::any_of(items.begin(), items.end(), is_undefined);
    type = has_undefined ? c10::TupleType::create(std::vector<c10::TypePtr>(items.size(), c10::AnyType::get())) : nullptr;
  }
  value = type ? c10::ivalue::Tuple::createNamed(std::move(items), type) : c10::ivalue::Tuple::create(std::move(items));
}

void visit_dict(c10::IValue& value, const ValueVisitor& with) {
  c10::Dict<c10::IValue, c10::IValue> dict = value.toGenericDict();
  fact(dict.size(), with);
  if (with.replaces_tensors) {
    dict = dict.copy();
    value = dict;
  }
  for (auto& entry : dict) {
    c10::IValue key = entry.key();
    visit(key, with);
    c10::IValue item = entry.value();
    visit(item, with);
    if (with.replaces_tensors) entry.setValue(std::move(item));
  }
}

}  // namespace

bool can_visit(const c10::IValue& value) {
  switch (kind_of(value)) {
    case Kind::Other:
      return false;
    case Kind::Tuple: {
      const auto& elements = value.toTupleRef().elements();
      return std::all_of(elements.begin(), elements.end(), can_visit);
    }
    case Kind::List: {
      const auto list = value.toListRef();
      return std::all_of(list.begin(), list.end(), can_visit);
    }
    case Kind::Dict:
      // A tensor as a key is compared by identity.
      for (const auto& entry : value.toGenericDict()) {
        if (entry.key().isTensor() || !can_visit(entry.key()) || !can_visit(entry.value())) return false;
      }
      return true;
    default:
      return true;
  }
}

void visit(c10::IValue& value, const ValueVisitor& with) {
  const Kind kind = kind_of(value);
  fact(kind, with);
  switch (kind) {
    case Kind::Tensor: {
      at::Tensor tensor = value.toTensor();
      with.tensor(tensor);
      if (with.replaces_tensors) value = std::move(tensor);
      return;
    }
    case Kind::None:
      return;
    case Kind::Bool:
      return fact(value.toBool(), with);
    case Kind::Int:
      return fact(value.toInt(), with);
    case Kind::Double:
      return fact(value.toDouble(), with);
    case Kind::Complex: {
      const c10::complex<double> number = value.toComplexDouble();
      fact(number.real(), with);
      return fact(number.imag(), with);
    }
    case Kind::String: {
      const std::string& text = value.toStringRef();
      fact(text.size(), with);
      return with.fact(text.data(), text.size());
    }
    case Kind::Device:
      return fact(value.toDevice(), with);
    case Kind::List:
      return visit_list(value, with);
    case Kind::Tuple:
      return visit_tuple(value, with);
    case Kind::Dict:
      return visit_dict(value, with);
    case Kind::Other:  // compared by identity
      return fact(value.isPtrType() ? value.internalToPointer() : nullptr, with);
  }
}

}  // namespace hindcast::detail
