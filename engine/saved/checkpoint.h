#pragma once
/// Functions whose intermediate tensors are not kept for the backward: <hindcast/checkpoint.h>. Valid C++17.

#include "base/api.h"
#include "engine/aot/tree.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hindcast {

/// The recomputation of a function gave something else than its forward. The text says what was seen and what was expected.
class HINDCAST_API CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~CheckpointError() override;
};

struct CheckpointOptions {
  /// The recomputation draws the random numbers that the forward drew, and those that come later stay as they would be: of the default
  /// generators of the CPU and of the devices that the inputs are on. False: it draws others, which for a dropout is wrong.
  bool preserve_rng_state = true;
  /// The recomputation ends, by an exception, once it has all tensors that are needed. False: it runs to the end of the function, as it does
  /// where a torch::autograd::Function saves one of its results.
  bool early_stop = true;
  /// Tensors of the recomputation have the sizes, dtypes and devices of those of the forward, and tensors from outside the same versions.
  /// False: none of that is looked at.
  bool check = true;
};

namespace engine {

/// While alive, what autograd saves on this thread is dropped, and made again by `rerun` when a backward needs it.
class HINDCAST_API CheckpointScope {
 public:
  using Rerun = std::function<void(const std::vector<at::Tensor>& inputs)>;
  /// False where a function just runs: grad mode is off, or what it does is being traced into a program, which has its own rules.
  static bool is_wanted();

  CheckpointScope(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, Rerun rerun);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine

/// Returns `fn(args...)`. What autograd would keep for the backward is dropped: `fn` runs again in the backward, when the first node that
/// needs one of these tensors has its turn, and not before. Memory is that of the arguments, and, in the backward, of one such `fn` at a
/// time; the price is a second forward. Gradients are those of `fn`, to the bit.
///
///     for (auto& block : blocks) x = hindcast::checkpoint(block, x);
///     loss(x).backward();
///
/// The semantics are those of torch.utils.checkpoint with use_reentrant=False: also retain_graph, create_graph, grad(), nested checkpoints,
/// any result type; with the stock engine and under hindcast alike. `fn` must do the same when it runs again, and is kept, as a copy, until
/// the backward has passed it. Arguments are tensors, and what engine/aot/tree.h knows; tensors that `fn` captures live as long as it does.
///
/// In a function that aot_function() traces there is no checkpoint: AotOptions::memory_budget decides what is saved there. A function
/// compiled by aot_function() runs eagerly inside of a checkpoint. Tensors that other threads save while `fn` runs are kept.
///
/// Throws, from the backward: CheckpointError where the recomputation saves other tensors than the forward; c10::Error where a tensor that
/// is needed was modified in place; what `fn` throws. Throws c10::Error if hooks of saved tensors are disabled on this thread.
template <class Function, class... Args>
auto checkpoint(const CheckpointOptions& options, Function fn, const Args&... args) {
  if (!engine::CheckpointScope::is_wanted()) return std::invoke(fn, args...);
  const auto function = std::make_shared<Function>(std::move(fn));
  tree::Flatten flat;
  (tree::visit(args, flat), ...);
  std::tuple<Args...> others(args...);
  tree::Strip strip;
  tree::visit(others, strip);
  const engine::CheckpointScope scope(options, flat.tensors, [function, others](const std::vector<at::Tensor>& inputs) {
    std::tuple<Args...> again = others;
    tree::Refill refill{inputs};
    tree::visit(again, refill);
    std::apply([&](auto&... one) { static_cast<void>(std::invoke(*function, std::as_const(one)...)); }, again);
  });
  return std::invoke(*function, args...);
}

template <class Function, class... Args, class = std::enable_if_t<!std::is_same_v<Function, CheckpointOptions>>>
auto checkpoint(Function fn, const Args&... args) {
  return checkpoint(CheckpointOptions(), std::move(fn), args...);
}

}  // namespace hindcast
