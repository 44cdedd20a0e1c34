#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {

const Argument* ShapeCall::find(std::string_view name) const {
  const auto& declared = schema_.arguments();
  for (size_t i = 0; i < declared.size() && i < args_.size(); ++i) {
    if (declared[i].name() == name) return &args_[i];
  }
  return nullptr;
}

const c10::IValue& ShapeCall::value(std::string_view name) const {
  const Argument* argument = find(name);
  require(argument != nullptr);
  const auto* value = std::get_if<c10::IValue>(&argument->value);
  require(value != nullptr);
  return *value;
}

bool ShapeCall::has(std::string_view name) const {
  const Argument* argument = find(name);
  if (!argument) return false;
  const auto* value = std::get_if<c10::IValue>(&argument->value);
  return !value || !value->isNone();
}

bool ShapeCall::has_tensor(std::string_view name) const {
  const Argument* argument = find(name);
  return argument && std::holds_alternative<Sizes>(argument->value);
}

const Sizes& ShapeCall::tensor(std::string_view name) const {
  require(has_tensor(name));
  return std::get<Sizes>(find(name)->value);
}

const std::vector<Sizes>& ShapeCall::tensors(std::string_view name) const {
  const Argument* argument = find(name);
  require(argument && std::holds_alternative<std::vector<Sizes>>(argument->value));
  return std::get<std::vector<Sizes>>(argument->value);
}

const std::vector<std::optional<IndexTensor>>& ShapeCall::indices(std::string_view name) const {
  const Argument* argument = find(name);
  require(argument && std::holds_alternative<std::vector<std::optional<IndexTensor>>>(argument->value));
  return std::get<std::vector<std::optional<IndexTensor>>>(argument->value);
}

ExprId ShapeCall::integer(std::string_view name) const {
  const c10::IValue& given = value(name);
  if (given.isInt()) return constant(given.toInt());
  require(given.isSymInt());
  return symbols.expr_of(given.toSymInt());
}

Sizes ShapeCall::integers(std::string_view name) const {
  const c10::IValue& given = value(name);
  if (given.isInt() || given.isSymInt()) return {integer(name)};
  require(given.isList());
  Sizes list;
  for (const c10::IValue& element : given.toListRef()) {
    require(element.isInt() || element.isSymInt());
    list.push_back(element.isInt() ? constant(element.toInt()) : symbols.expr_of(element.toSymInt()));
  }
  return list;
}

Sizes ShapeCall::integers(std::string_view name, size_t count) const {
  Sizes list = integers(name);
  if (list.size() == 1) list.resize(count, list[0]);
  require(list.size() == count);
  return list;
}

int64_t ShapeCall::number(std::string_view name) const { return symbols.pin(integer(name)); }

std::vector<int64_t> ShapeCall::numbers(std::string_view name) const {
  std::vector<int64_t> list;
  if (!has(name)) return list;
  for (const ExprId element : integers(name)) list.push_back(symbols.pin(element));
  return list;
}

bool ShapeCall::flag(std::string_view name) const {
  const c10::IValue& given = value(name);
  require(given.isBool());
  return given.toBool();
}

std::string_view ShapeCall::text(std::string_view name) const {
  const c10::IValue& given = value(name);
  require(given.isString());
  return given.toStringRef();
}

size_t ShapeCall::dim(std::string_view name, size_t rank) const { return wrap_dim(number(name), rank); }

Sizes ShapeCall::unless_undefined(size_t i, const Sizes& sizes) const {
  require(i < outputs());
  return real(i).empty() ? Sizes{} : sizes;
}

ExprId ShapeCall::product(const Sizes& sizes) const {
  ExprId all = constant(1);
  for (const ExprId size : sizes) all = symbols.mul(all, size);
  return all;
}

ExprId ShapeCall::same(ExprId a, ExprId b) const {
  require(symbols.hint(a) == symbols.hint(b));
  symbols.equal(a, b);
  if (symbols.is_constant(a) != symbols.is_constant(b)) return symbols.is_constant(a) ? a : b;
  return std::min(a, b);  // made earlier: nearer to the inputs
}

Sizes ShapeCall::same(const Sizes& a, const Sizes& b) const {
  require(a.size() == b.size());
  Sizes merged;
  for (size_t i = 0; i < a.size(); ++i) merged.push_back(same(a[i], b[i]));
  return merged;
}

// Only the size that is expanded is examined: the other one is the result in any case.
Sizes ShapeCall::broadcast(const Sizes& a, const Sizes& b) const {
  if (a.size() < b.size()) return broadcast(b, a);
  Sizes result = a;
  for (size_t i = 0; i < b.size(); ++i) {
    ExprId& left = result[a.size() - b.size() + i];
    const ExprId right = b[i];
    if (left == right) continue;
    if (symbols.hint(left) == symbols.hint(right)) {
      left = same(left, right);
    } else if (symbols.hint(right) == 1) {
      is_one(right);
    } else {
      require(symbols.hint(left) == 1);
      is_one(left);
      left = right;
    }
  }
  return result;
}

size_t wrap_dim(int64_t dim, size_t rank) {
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(rank), 1);  // a 0-dim tensor has dims 0 and -1
  require(dim >= -count && dim < count);
  return static_cast<size_t>(dim < 0 ? dim + count : dim);
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) found.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

}  // namespace hindcast::capture
