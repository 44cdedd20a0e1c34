#pragma once
/// Converts arguments and results of a typed call to and from AotCore's lists of tensors. Valid C++17.

#include <hindcast/detail/aot_core.h>
#include <hindcast/tree.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hindcast::detail {

struct FlatArguments {
  std::vector<at::Tensor> tensors;
  std::string facts;
  std::vector<bool> is_static;  // by tensor
};

/// `facts`: what the result depends on besides the arguments. `static_argnums`: arguments whose sizes never become dynamic.
template <class... Args>
FlatArguments flatten(std::string facts, const std::vector<std::size_t>& static_argnums, const Args&... args) {
  tree::Flatten flat{{}, std::move(facts)};
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

/// Calls `function` with `args`, a tuple, whose tensors are replaced by `tensors`.
template <class Result, class Function, class Args>
FunctionOutput run_on(Function& function, const std::vector<at::Tensor>& tensors, Args args) {
  tree::Refill refill{tensors};
  tree::visit(args, refill);
  Result result = std::apply(function, args);
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
