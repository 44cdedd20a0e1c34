#pragma once
/// Functions compiled ahead of time: <hindcast/aot.h>. Valid C++17.
///
/// What a compiled function reads besides its arguments is invisible to hindcast: a number that a lambda captured and a branch that was
/// taken keep their values from the first call. Pass such numbers as arguments, or detect changes with `AotOptions::check_every`.

#include <hindcast/aot_options.h>
#include <hindcast/detail/aot_core.h>
#include <hindcast/detail/typed_call.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace hindcast {

/// A function compiled to programs: its forward and its backward were traced together in an earlier call. Called like the function. Copies
/// share the programs. Thread-safe.
template <class Function>
class AotFunction {
 public:
  AotFunction(Function function, AotOptions options)
      : function_(std::make_shared<Function>(std::move(function))),
        static_argnums_(options.static_argnums),
        core_(std::make_shared<detail::AotCore>(std::move(options))) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    return call_with([] { return std::string(); }, args...);
  }

  /// The same, where the result also depends on the text that `facts()` returns.
  template <class Facts, class... Args>
  auto call_with(const Facts& facts, const Args&... args) const {
    return call_without_literals(facts, detail::without_literal(args)...);
  }

  /// Runs the function itself and counts the call as eager, with the reason `why`. Throws if AotOptions::fallback is false.
  template <class... Args>
  auto call_eagerly(std::string_view why, const Args&... args) const {
    std::optional<detail::ResultOf<Function, Args...>> result;
    const auto run = [&](const std::vector<at::Tensor>&) {
      result.emplace(itself(args...));
      return detail::FunctionOutput{};
    };
    detail::FunctionCall call{{}, {}, {}, run};
    call.why_eager = why;
    core_->call(call);
    return std::move(*result);
  }

  AotStats stats() const {
    AotStats stats = core_->stats();
    stats.left = next_->left();
    stats.calls += stats.left;
    stats.eager += stats.left;
    return stats;
  }
  /// Drops all compiled programs.
  void reset() {
    core_->reset();
    next_->are(0);
  }
  const detail::AotCore& core() const { return *core_; }

 private:
  template <class Facts, class... Args>
  auto call_without_literals(const Facts& facts, const Args&... args) const {
    if constexpr (std::is_void_v<std::invoke_result_t<Function&, Args&...>>) {
      result_for(facts, args...);
    } else {
      return result_for(facts, args...);
    }
  }

  template <class Facts, class... Args>
  detail::ResultOf<Function, Args...> result_for(const Facts& facts, const Args&... args) const {
    if (next_->leaves_this_one()) return itself(args...);
    if (!next_->is_timed()) return look</*is_timed=*/false>(facts, args...);
    next_->are(0);
    return look</*is_timed=*/true>(facts, args...);
  }

  template <class... Args>
  detail::ResultOf<Function, Args...> itself(const Args&... args) const {
    std::tuple<Args...> copies(args...);
    return detail::call_on_copies<detail::ResultOf<Function, Args...>>(*function_, copies, args...);
  }

  detail::FunctionOutput call(detail::FunctionCall call) const {
    try {
      return core_->call(std::move(call));
    } catch (...) {
      next_->are(core_->threw());
      throw;
    }
  }

  template <bool is_timed, class Facts, class... Args>
  auto look(const Facts& facts, const Args&... args) const {
    using Result = detail::ResultOf<Function, Args...>;
    const std::uint64_t start = is_timed ? detail::processor_ns() : 0;
    detail::FlatArguments flat = detail::flatten(facts(), static_argnums_, args...);
    const auto run = [&](const std::vector<at::Tensor>& tensors) {
      return detail::run_on<Result>(*function_, tensors, std::tuple<Args...>(args...));
    };
    const detail::FunctionOutput output =
        call({std::move(flat.tensors), std::move(flat.facts), std::move(flat.is_static), run, {}, is_timed});
    if (is_timed && output.is_functions) {
      const std::uint64_t own_start = detail::processor_ns();
      Result result = itself(args...);
      const std::uint64_t own_ns = detail::processor_ns() - own_start;
      tree::Flatten results;
      tree::visit(result, results);
      core_->time_backward(results.tensors);
      next_->are(core_->took(own_ns, own_ns));
      return result;
    }
    Result result = detail::result_of<Result>(output);
    if (is_timed) {
      next_->are(core_->took(detail::processor_ns() - start, output.own_ns));
    } else if (output.next != 0) {
      next_->are(output.next);
    }
    return result;
  }

  std::shared_ptr<Function> function_;
  std::vector<std::size_t> static_argnums_;
  std::shared_ptr<detail::AotCore> core_;
  std::shared_ptr<detail::BackOffCounter> next_ = std::make_shared<detail::BackOffCounter>();
};

/// Compiles `function`, which takes and returns tensors and the types that <hindcast/tree.h> supports.
///
/// The first call traces the function by running it, and returns its true results. Later calls run programs; their kernels are compiled in
/// the background. Each call checks dtypes, devices, layouts, strides, requires_grad, grad mode, autocast, and numbers; sizes that change
/// become dynamic with the second size. Tensors that the function reads from outside are inputs by identity.
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
struct IsModule<T, std::void_t<typename T::ContainedType>> : std::true_type {};  // a module holder
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
