#pragma once
/// Activation checkpointing: functions whose intermediate tensors are recomputed in the backward: <hindcast/checkpoint.h>. Valid C++17.

#include <hindcast/api.h>
#include <hindcast/detail/typed_call.h>
#include <hindcast/offload.h>
#include <hindcast/tree.h>

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hindcast {

/// Thrown if the recomputation of a function differs from its forward. The text says what was seen and what was expected.
class HINDCAST_API CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~CheckpointError() override;
};

struct CheckpointOptions {
  /// True: the recomputation draws the same random numbers as the forward, and later draws are unaffected. Covers the default generators of
  /// the CPU and of the inputs' devices. False: it draws other numbers, which is wrong for a dropout.
  bool preserve_rng_state = true;
  /// True: an exception ends the recomputation once it has all tensors that are needed. False: it runs to the end of the function, as it
  /// always does where a torch::autograd::Function saves one of its results.
  bool early_stop = true;
  /// True: checks that the recomputed tensors have the sizes, dtypes and devices of the forward's, and that tensors from outside have the
  /// same versions. False: checks nothing.
  bool check = true;
};

namespace detail {

/// While alive, tensors that autograd saves on this thread are dropped, and recomputed by `rerun` when a backward needs them.
class HINDCAST_API CheckpointScope {
 public:
  using Rerun = std::function<void(const std::vector<at::Tensor>& inputs)>;
  /// False if the function should just run: grad mode is off, or it is being traced into a program, which has its own rules.
  static bool is_wanted();

  CheckpointScope(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, Rerun rerun);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class Function, class... Args>
ResultOf<Function, Args...> result_of_checkpoint(const CheckpointOptions& options, Function fn, const Args&... args) {
  using Result = ResultOf<Function, Args...>;
  std::tuple<Args...> copies(args...);
  if (!CheckpointScope::is_wanted()) return call_on_copies<Result>(fn, copies, args...);
  const auto function = std::make_shared<Function>(std::move(fn));
  tree::Flatten flat;
  (tree::visit(args, flat), ...);
  std::tuple<Args...> others(args...);
  tree::Strip strip;
  tree::visit(others, strip);
  const CheckpointScope scope(options, flat.tensors, [function, others](const std::vector<at::Tensor>& inputs) {
    std::tuple<Args...> again = others;
    tree::Refill refill{inputs};
    tree::visit(again, refill);
    static_cast<void>(std::apply(*function, again));
  });
  return call_on_copies<Result>(*function, copies, args...);
}

template <class Function, class... Args>
auto checkpoint_without_literals(const CheckpointOptions& options, Function fn, const Args&... args) {
  if constexpr (std::is_void_v<std::invoke_result_t<Function&, Args&...>>) {
    result_of_checkpoint(options, std::move(fn), args...);
  } else {
    return result_of_checkpoint(options, std::move(fn), args...);
  }
}

}  // namespace detail

/// Returns `fn(args...)`. Tensors that autograd would save for the backward are dropped: `fn` runs again in the backward, not before the
/// first node that needs one of them. Memory use is that of the arguments and, in the backward, of one such `fn` at a time; the cost is a
/// second forward. Gradients are bitwise equal to those of `fn`.
///
///     for (auto& block : blocks) x = hindcast::checkpoint(block, x);
///     loss(x).backward();
///
/// The semantics are those of torch.utils.checkpoint with use_reentrant=False, including retain_graph, create_graph, grad(), nested
/// checkpoints and any result type, with the stock engine and under hindcast. `fn` must do the same when it runs again; a copy of it is
/// kept until the backward has passed it. Arguments are tensors and the types that <hindcast/tree.h> supports; tensors that `fn`
/// captures live as long as `fn`. An argument that `fn` takes by reference is a copy; assigning to it throws std::invalid_argument.
///
/// In a function that aot_function() traces, a checkpoint has no effect: AotOptions::memory_budget decides what is saved there. A function
/// compiled by aot_function() runs eagerly inside a checkpoint. Tensors that other threads save while `fn` runs are kept.
///
/// Throws from the backward: CheckpointError if the recomputation saves other tensors than the forward; c10::Error if a tensor that is
/// needed was modified in place; what `fn` throws. Throws c10::Error if saved-tensor hooks are disabled on this thread.
template <class Function, class... Args>
auto checkpoint(const CheckpointOptions& options, Function fn, const Args&... args) {
  return detail::checkpoint_without_literals(options, std::move(fn), detail::without_literal(args)...);
}

template <class Function, class... Args, class = std::enable_if_t<!std::is_same_v<Function, CheckpointOptions>>>
auto checkpoint(Function fn, const Args&... args) {
  return checkpoint(CheckpointOptions(), std::move(fn), args...);
}

}  // namespace hindcast
