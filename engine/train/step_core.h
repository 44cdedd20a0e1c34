#pragma once
// A training step over lists of tensors: what train_step() stands on. Valid C++17.

#include "engine/aot/core.h"
#include "engine/optim/compiled_step.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace hindcast {

struct TrainStepOptions {
  std::optional<ClipGradNorm> clip;  ///< of all gradients, before the update
  /// True: `.grad()` of each parameter is its gradient after the step. False: it is undefined, as after zero_grad().
  bool keep_gradients = false;
  /// n: each call is one of n micro-batches, whose gradients are added; the n-th makes the update. Divide the loss by n for their mean.
  std::uint32_t accumulate = 1;
  /// True: leaves that the loss depends on, and that the optimizer does not have, get no gradient. False: that is an error.
  bool ignore_other_leaves = false;
  /// On CUDA: a step that recurs is recorded as one CUDA graph, from the copy of the batch to the update. Needs `accumulate` 1, no
  /// `keep_gradients`, no ClipGradNorm::error_if_nonfinite, and a function that draws no random numbers. Other steps run without a graph;
  /// TrainStepStats::why_no_cuda_graph says why.
  bool cuda_graphs = false;
  std::size_t cuda_graph_bytes = std::size_t{256} << 20;  ///< of device memory that the graphs of one train_step() keep
  AotOptions aot;                                         ///< of the program of loss and gradients
};

/// What a step did since it was made.
struct TrainStepStats {
  std::uint64_t calls = 0;
  std::uint64_t hits = 0;         ///< calls whose loss and gradients were one program
  std::uint64_t traces = 0;       ///< calls that were recorded
  std::uint64_t eager = 0;        ///< calls that ran the function, and LibTorch's backward of it
  std::uint64_t three_parts = 0;  ///< of these: calls that ran as zero_grad(), backward(), step()
  std::string why_three_parts;    ///< the last one's reason
  std::uint64_t cuda_graph_launches = 0;
  std::size_t cuda_graph_bytes = 0;
  std::string why_no_cuda_graph;  ///< the last reason
  CompiledStep::Counts updates;   ///< of parameters
};

namespace engine {

class HINDCAST_API StepCore {
 public:
  /// Throws std::invalid_argument for a bad option, and for an optimizer without parameters.
  StepCore(torch::optim::Optimizer& optimizer, TrainStepOptions options);
  StepCore(StepCore&&) noexcept;
  StepCore& operator=(StepCore&&) noexcept;
  ~StepCore();

  /// `call.function` gives the loss first. The result is what it gave, without history.
  FunctionOutput call(const FunctionCall& call);
  double grad_norm() const;
  TrainStepStats stats() const;
  void reset();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace engine
}  // namespace hindcast
