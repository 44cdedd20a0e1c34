#pragma once
/// The optimizer's step as kernels: one pass over the memory of each parameter. Valid C++17.
///
///     torch::optim::AdamW optimizer(model->parameters(), 1e-3);
///     auto step = hindcast::compiled_step(optimizer, hindcast::ClipGradNorm{1.0});
///     ...
///     loss.backward();
///     step();                                                 // in place of clip_grad_norm_() and optimizer.step()

#include "base/api.h"

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

namespace engine {
class StepParts;
}

/// As the arguments of torch::nn::utils::clip_grad_norm_.
struct ClipGradNorm {
  double max_norm = 0;
  double norm_type = 2;
  bool error_if_nonfinite = false;
};

/// What compiled_step() gives. Movable. Not for several threads at a time, as the optimizer itself is not.
class HINDCAST_API CompiledStep {
 public:
  using Closure = std::function<at::Tensor()>;

  CompiledStep(CompiledStep&&) noexcept;
  CompiledStep& operator=(CompiledStep&&) noexcept;
  ~CompiledStep();

  /// Does what clip_grad_norm_() and then `optimizer.step(closure)` do, with the same state, to rounding. Returns what the closure returned.
  /// Throws what they throw.
  at::Tensor operator()(const Closure& closure = nullptr);

  /// The norm of all gradients before the last step clipped them. 0: there was no gradient, or no ClipGradNorm was asked for. Waits for the
  /// device.
  double grad_norm() const;

  /// Updates of a parameter so far: by kernels, and by the optimizer's own code.
  struct Counts {
    uint64_t compiled = 0;
    uint64_t original = 0;
    std::string why_original;  // the last one's reason
  };
  const Counts& counts() const;

 private:
  friend CompiledStep compiled_step(torch::optim::Optimizer&, std::optional<ClipGradNorm>);
  friend engine::StepParts;
  class Impl;
  explicit CompiledStep(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The step of `optimizer`, which must live as long as the result and stay where it is. State, parameter groups and options stay the
/// optimizer's: its state is saved and loaded as before, options may change between steps, and steps of the two may alternate.
///
/// Kernels make the updates of SGD, Adam, AdamW, RMSprop and Adagrad. The optimizer's own code makes those of other classes, of sparse
/// gradients, of complex and integer parameters, and of a parameter, gradient and state that do not lie alike in memory.
///
/// `clip`: gradients are scaled in the kernel that reads them. `.grad()` itself keeps what the backward wrote.
/// Gradients that are empty, sparse or on several devices are clipped by LibTorch's function, which writes to `.grad()`.
HINDCAST_API CompiledStep compiled_step(torch::optim::Optimizer& optimizer, std::optional<ClipGradNorm> clip = std::nullopt);

}  // namespace hindcast
