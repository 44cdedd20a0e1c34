#pragma once
/// Functions compiled ahead of time: <hindcast/aot.h>. Valid C++17.
///
/// What a compiled function reads besides its arguments is invisible to hindcast: a number that a lambda captured, a branch that it took,
/// stay as they were in the first call. Give such numbers as arguments, or let `AotOptions::check_every` find out.

#include "engine/aot/aot_options.h"
#include "engine/aot/core.h"
#include "engine/aot/tree.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace hindcast {

/// A function that runs as programs: its forward and its backward were traced together in an earlier call. Called like the function. A
/// copy is the same function. Safe from many threads.
template <class Function>
class AotFunction {
 public:
  AotFunction(Function function, AotOptions options)
      : function_(std::make_shared<Function>(std::move(function))),
        static_argnums_(options.static_argnums),
        core_(std::make_shared<engine::AotCore>(std::move(options))) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    return call_with({}, args...);
  }

  /// The same, where the result depends on `facts` too.
  template <class... Args>
  auto call_with(std::string facts, const Args&... args) const {
    using Result = std::invoke_result_t<Function&, Args&...>;
    tree::Flatten flat{{}, std::move(facts)};
    std::vector<bool> is_static;
    std::size_t number = 0;
    (
        [&] {
          tree::visit(args, flat);
          is_static.resize(flat.tensors.size(),
                           std::find(static_argnums_.begin(), static_argnums_.end(), number++) != static_argnums_.end());
        }(),
        ...);
    const auto run = [&](const std::vector<at::Tensor>& tensors) { return run_on<Result>(tensors, std::tuple<Args...>(args...)); };
    const engine::FunctionOutput output = core_->call({std::move(flat.tensors), std::move(flat.facts), std::move(is_static), run});
    Result result = *static_cast<const Result*>(output.shape.get());
    tree::Refill refill{output.tensors};
    tree::visit(result, refill);
    return result;
  }

  AotStats stats() const { return core_->stats(); }
  /// Forgets what was compiled.
  void reset() { core_->reset(); }
  const engine::AotCore& core() const { return *core_; }

 private:
  template <class Result, class Args>
  engine::FunctionOutput run_on(const std::vector<at::Tensor>& tensors, Args args) const {
    tree::Refill refill{tensors};
    tree::visit(args, refill);
    Result result = std::apply(*function_, args);
    tree::Flatten flat;
    tree::visit(result, flat);
    tree::Strip strip;
    tree::visit(result, strip);
    return {std::move(flat.tensors), std::make_shared<const Result>(std::move(result)), std::move(flat.facts)};
  }

  std::shared_ptr<Function> function_;
  std::vector<std::size_t> static_argnums_;
  std::shared_ptr<engine::AotCore> core_;
};

/// Compiles `function`, which takes and returns tensors, and what engine/aot/tree.h knows.
///
/// The first call traces the function by running it: it gives its true results. Later ones run programs; kernels for them are compiled
/// in the background. Dtypes, devices, layouts, strides, requires_grad, grad mode and autocast are looked at in each call, and so are
/// numbers; sizes that change become dynamic with the second size. Tensors that the function reads from outside are inputs by identity.
///
///     auto f = hindcast::aot_function([](at::Tensor a, at::Tensor b) { return (a + b).cos().cos(); });
///     f(x, y).sum().backward();
template <class Function>
AotFunction<Function> aot_function(Function function, AotOptions options = {}) {
  return {std::move(function), std::move(options)};
}

template <class T, class = void>
struct IsModule : std::false_type {};
template <class T>
struct IsModule<T, std::void_t<typename T::ContainedType>> : std::true_type {};  // the holder of one
template <class T>
struct IsModule<std::shared_ptr<T>, void> : std::true_type {};

/// aot_function() with partition::min_cut and fusing compilers.
template <class Function, class = std::enable_if_t<!IsModule<Function>::value>>
AotFunction<Function> memory_efficient_fusion(Function function, std::vector<std::size_t> static_argnums = {}) {
  AotOptions options;
  options.partition = partition::min_cut;
  options.static_argnums = std::move(static_argnums);
  return {std::move(function), std::move(options)};
}

}  // namespace hindcast
