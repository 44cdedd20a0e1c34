#pragma once
/// Converts arguments and results of a typed call to and from AotCore's lists of tensors. Valid C++17.

#include <hindcast/detail/aot_core.h>
#include <hindcast/tree.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace hindcast::detail {

/// What a function returns for these arguments: a value; an empty tuple for void.
template <class Function, class... Args>
using ResultOf = std::conditional_t<std::is_void_v<std::invoke_result_t<Function&, Args&...>>, std::tuple<>,
                                    std::decay_t<std::invoke_result_t<Function&, Args&...>>>;

/// The argument itself; a string for a string literal, which cannot be copied into a tuple.
template <class T>
const T& without_literal(const T& argument) {
  return argument;
}
inline std::string without_literal(const char* text) { return text; }

/// Values of other types may have the same bytes, such as 0 and 0.0.
template <class... Args>
inline const std::size_t kHashOfTypes = typeid(std::tuple<Args...>).hash_code();

struct FlatArguments {
  std::vector<at::Tensor> tensors;
  std::string facts;
  std::vector<bool> is_static;  // by tensor
};

/// `facts`: what the result depends on besides the arguments. `static_argnums`: arguments whose sizes never become dynamic.
template <class... Args>
FlatArguments flatten(std::string facts, const std::vector<std::size_t>& static_argnums, const Args&... args) {
  tree::Flatten flat{{}, std::move(facts)};
  flat.fact(&kHashOfTypes<Args...>, sizeof kHashOfTypes<Args...>);
  std::vector<bool> is_static;
  std::size_t number = 0;
  (
      [&] {
        tree::visit(args, flat);
        is_static.resize(flat.tensors.size(), std::find(static_argnums.begin(), static_argnums.end(), number++) != static_argnums.end());
      }(),
      ...);
  return {std::move(flat.tensors), std::move(flat.facts), std::move(is_static)};
}

/// A hash of a value's tensors, by identity, and of the rest.
struct Fingerprint {
  std::size_t hash = 0;
  void tensor(const at::Tensor& tensor) { add(reinterpret_cast<std::size_t>(tensor.unsafeGetTensorImpl())); }
  void fact(const void* bytes, std::size_t size) { add(std::hash<std::string_view>()({static_cast<const char*>(bytes), size})); }
  void add(std::size_t part) { hash = (hash ^ part) * std::size_t{0x9e3779b97f4a7c15}; }
};
template <class T>
std::size_t fingerprint(const T& value) {
  Fingerprint of_value;
  tree::visit(value, of_value);
  return of_value.hash;
}

/// Whether both are the same tensors and numbers.
template <class T>
bool is_unchanged(const T& now, const T& given) {
  if constexpr (std::is_base_of_v<at::TensorBase, T>) {
    return now.is_same(given);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return std::memcmp(&now, &given, sizeof now) == 0;
  } else {
    return fingerprint(now) == fingerprint(given);
  }
}

template <class... Args>
void check_not_assigned(const std::tuple<Args...>& copies, const Args&... given) {
  const bool is_assigned = std::apply([&](const Args&... now) { return !(is_unchanged(now, given) && ...); }, copies);
  if (!is_assigned) return;
  throw std::invalid_argument(
      "hindcast: a compiled or checkpointed function assigned to an argument that it takes by reference. It gets a copy, so the caller's "
      "object would not change. Take the argument by value, and return the new value; operators that write in place, as x.copy_(y), are "
      "fine");
}

/// Calls `function` with `copies` of `given`. Throws if the function assigns to one of them: the caller's object would not change.
template <class Result, class Function, class... Args>
Result call_on_copies(Function& function, std::tuple<Args...>& copies, const Args&... given) {
  if constexpr (std::is_void_v<std::invoke_result_t<Function&, Args&...>>) {
    std::apply(function, copies);
    check_not_assigned(copies, given...);
    return {};
  } else {
    Result result = std::apply(function, copies);
    check_not_assigned(copies, given...);
    return result;
  }
}

/// Calls `function` with `args`, a tuple, whose tensors are replaced by `tensors`.
template <class Result, class Function, class... Args>
FunctionOutput run_on(Function& function, const std::vector<at::Tensor>& tensors, std::tuple<Args...> args) {
  tree::Refill refill{tensors};
  tree::visit(args, refill);
  std::tuple<Args...> copies = args;
  Result result = std::apply([&](const Args&... given) { return call_on_copies<Result>(function, copies, given...); }, args);
  tree::Flatten flat;
  tree::visit(result, flat);
  tree::Strip strip;
  tree::visit(result, strip);
  return {std::move(flat.tensors), std::make_shared<const Result>(std::move(result)), std::move(flat.facts)};
}

/// The result of a call whose function was run by run_on().
template <class Result>
Result result_of(const FunctionOutput& output) {
  Result result = *static_cast<const Result*>(output.shape.get());
  tree::Refill refill{output.tensors};
  tree::visit(result, refill);
  return result;
}

}  // namespace hindcast::detail
