#pragma once
/// The optimizer's step as fused kernels: one pass over the memory of each parameter. Valid C++17.
///
///     torch::optim::AdamW optimizer(model->parameters(), 1e-3);
///     auto step = hindcast::compiled_step(optimizer, hindcast::ClipGradNorm{1.0});
///     ...
///     loss.backward();
///     step();                                                 // in place of clip_grad_norm_() and optimizer.step()

#include <hindcast/api.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace torch::optim {
class Optimizer;
}

namespace hindcast {

namespace detail {
class StepParts;
}

/// The arguments of torch::nn::utils::clip_grad_norm_.
struct ClipGradNorm {
  double max_norm = 0;
  double norm_type = 2;
  bool error_if_nonfinite = false;
};

/// Returned by compiled_step(). Movable. Not thread-safe, like the optimizer itself.
class HINDCAST_API CompiledStep {
 public:
  using Closure = std::function<at::Tensor()>;

  CompiledStep(CompiledStep&&) noexcept;
  CompiledStep& operator=(CompiledStep&&) noexcept;
  ~CompiledStep();

  /// Does what clip_grad_norm_() and then `optimizer.step(closure)` do, with the same state, up to rounding. Returns what the closure
  /// returned. Throws what they throw.
  at::Tensor operator()(const Closure& closure = nullptr);

  /// The norm of all gradients before the last step clipped them. 0 if there was no gradient or no ClipGradNorm was given. Waits for the
  /// device.
  double grad_norm() const;

  /// Parameter updates so far: by kernels, and by the optimizer's own code.
  struct Counts {
    uint64_t compiled = 0;
    uint64_t original = 0;
    std::string why_original;  // reason of the last one
  };
  const Counts& counts() const;

 private:
  friend CompiledStep compiled_step(torch::optim::Optimizer&, std::optional<ClipGradNorm>);
  friend detail::StepParts;
  class Impl;
  explicit CompiledStep(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Returns a compiled step of `optimizer`, which must outlive it and must not move. State, parameter groups and options stay in the
/// optimizer: its state is saved and loaded as before, options may change between steps, and compiled and original steps may alternate.
///
/// Kernels make the updates of SGD, Adam, AdamW, RMSprop and Adagrad. The optimizer's own code makes those of other classes, of sparse
/// gradients, of complex and integer parameters, and of parameters whose gradient or state does not have the same layout.
///
/// `clip`: the kernel that reads a gradient also scales it; `.grad()` itself keeps what the backward wrote. Gradients that are empty,
/// sparse or on several devices are clipped by LibTorch's function, which writes to `.grad()`.
HINDCAST_API CompiledStep compiled_step(torch::optim::Optimizer& optimizer, std::optional<ClipGradNorm> clip = std::nullopt);

}  // namespace hindcast
