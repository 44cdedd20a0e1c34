#pragma once
/// Options and counters of train_step(): <hindcast/train_step.h>. Valid C++17.

#include <hindcast/aot_options.h>
#include <hindcast/compiled_step.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hindcast {

struct TrainStepOptions {
  std::optional<ClipGradNorm> clip;  ///< clips all gradients, before the update
  /// True: `.grad()` of each parameter is its gradient after the step. False: it is undefined, as after zero_grad().
  bool keep_gradients = false;
  /// n: each call is one of n micro-batches, whose gradients are added up; the n-th updates. Divide the loss by n for their mean.
  std::uint32_t accumulate = 1;
  /// True: leaves that the loss depends on and the optimizer does not have get no gradient. False: they are an error.
  bool ignore_other_leaves = false;
  /// On CUDA: a recurring step is captured into one CUDA graph, from the copy of the batch to the update. Needs `accumulate` 1, no
  /// `keep_gradients`, no ClipGradNorm::error_if_nonfinite, and a function that draws no random numbers. Other steps run without a graph;
  /// TrainStepStats::why_no_cuda_graph says why.
  bool cuda_graphs = false;
  std::size_t cuda_graph_bytes = std::size_t{256} << 20;  ///< device memory that the graphs of one train_step() may keep
  AotOptions aot;                                         ///< for the program of loss and gradients
};

/// Counters of a step since it was made.
struct TrainStepStats {
  std::uint64_t calls = 0;
  std::uint64_t hits = 0;         ///< calls whose loss and gradients ran as one program
  std::uint64_t traces = 0;       ///< calls that were traced
  std::uint64_t eager = 0;        ///< calls that ran the function and LibTorch's backward
  std::uint64_t three_parts = 0;  ///< of these: calls that ran as zero_grad(), backward(), step()
  std::string why_three_parts;    ///< the last reason
  std::uint64_t cuda_graph_launches = 0;
  std::size_t cuda_graph_bytes = 0;
  std::string why_no_cuda_graph;  ///< the last reason
  CompiledStep::Counts updates;   ///< of parameters
};

}  // namespace hindcast
