#pragma once
// Flattens arguments and results of functions into lists of tensors and other data. Valid C++17.

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hindcast {

/// Visits the parts of a value: `visit.tensor(at::Tensor&)`, and `visit.fact(bytes, size)` for numbers and element counts. Supported are
/// tensors, numbers, enums, strings, and optionals, vectors, arrays, pairs, tuples and maps of supported types. A struct is supported if
/// there is a function beside it which returns its members:
///
///     struct Batch { at::Tensor images, labels; };
///     template <class B> auto hindcast_members(B& batch, Batch*) { return std::tie(batch.images, batch.labels); }
///
/// A struct that is derived from it needs its own.
///
/// A type whose contents are only known at run time visits itself: `hindcast_visit(value, visit, T*)`, as in
/// <hindcast/detail/script_values.h>.
namespace tree {

template <class T>
struct IsList : std::false_type {};
template <class T, class A>
struct IsList<std::vector<T, A>> : std::true_type {};
template <class T, std::size_t n>
struct IsList<std::array<T, n>> : std::true_type {};

template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
struct IsMap : std::false_type {};
template <class K, class V, class... Rest>
struct IsMap<std::map<K, V, Rest...>> : std::true_type {};

/// Converts to T* only, so that a struct is not taken for its base, whose function does not return all of its members.
template <class T>
struct Exactly {
  template <class Other, class = std::enable_if_t<std::is_same_v<Other, T>>>
  operator Other*() const {
    return nullptr;
  }
};

template <class T, class = void>
struct HasMembers : std::false_type {};
template <class T>
struct HasMembers<T, std::void_t<decltype(hindcast_members(std::declval<T&>(), Exactly<T>()))>> : std::true_type {};

template <class T>
struct AreReferences : std::false_type {};
template <class... T>
struct AreReferences<std::tuple<T...>> : std::bool_constant<(std::is_lvalue_reference_v<T> && ...)> {};

template <class T, class Visit, class = void>
struct HasVisit : std::false_type {};
template <class T, class Visit>
struct HasVisit<T, Visit, std::void_t<decltype(hindcast_visit(std::declval<T&>(), std::declval<Visit&>(), static_cast<T*>(nullptr)))>>
    : std::true_type {};

template <class T, class Visit>
void visit(T& value, Visit& with) {
  using Plain = std::remove_const_t<T>;
  const auto fact = [&](auto number) { with.fact(&number, sizeof(number)); };
  if constexpr (std::is_base_of_v<at::TensorBase, Plain>) {
    with.tensor(value);
  } else if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain>) {
    fact(value);
  } else if constexpr (std::is_same_v<Plain, std::string>) {
    fact(value.size());
    with.fact(value.data(), value.size());
  } else if constexpr (HasVisit<Plain, Visit>::value) {
    hindcast_visit(value, with, static_cast<Plain*>(nullptr));
  } else if constexpr (IsOptional<Plain>::value) {
    fact(value.has_value());
    if (value) tree::visit(*value, with);
  } else if constexpr (std::is_same_v<Plain, std::vector<bool>>) {
    fact(value.size());
    for (const bool item : value) fact(item);
  } else if constexpr (IsList<Plain>::value) {
    fact(value.size());
    for (auto& item : value) tree::visit(item, with);
  } else if constexpr (IsMap<Plain>::value) {
    fact(value.size());
    for (auto& [key, item] : value) {
      tree::visit(key, with);
      tree::visit(item, with);
    }
  } else if constexpr (IsTuple<Plain>::value) {
    std::apply([&](auto&... items) { (tree::visit(items, with), ...); }, value);
  } else {
    static_assert(HasMembers<Plain>::value,
                  "hindcast: arguments and results are tensors, numbers, strings, and optionals, vectors, arrays, pairs, tuples, maps of "
                  "them; a struct needs a function hindcast_members(), see <hindcast/tree.h>");
    auto members = hindcast_members(value, Exactly<Plain>());
    static_assert(AreReferences<decltype(members)>::value,
                  "hindcast: hindcast_members() must return references to all members, as std::tie() does");
    std::apply([&](auto&... items) { (tree::visit(items, with), ...); }, members);
  }
}

/// Collects tensors, and the rest as bytes.
struct Flatten {
  std::vector<at::Tensor> tensors;
  std::string facts;
  void tensor(const at::Tensor& tensor) { tensors.push_back(tensor); }
  void fact(const void* bytes, std::size_t size) { facts.append(static_cast<const char*>(bytes), size); }
};

/// Puts tensors back in the places where Flatten found some, in order.
struct Refill {
  const std::vector<at::Tensor>& tensors;
  std::size_t next = 0;
  void tensor(at::Tensor& tensor) { tensor = tensors.at(next++); }
  void fact(const void*, std::size_t) {}
};

/// Releases all tensors.
struct Strip {
  void tensor(at::Tensor& tensor) { tensor = at::Tensor(); }
  void fact(const void*, std::size_t) {}
};

}  // namespace tree
}  // namespace hindcast
