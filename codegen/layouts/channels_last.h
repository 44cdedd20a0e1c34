#pragma once
// Rewrites a joint program so that its convolutions work channels-last: images are converted at its inputs and outputs, and not in between.

#include "capture/function/joint.h"
#include "codegen/fuse/cost_model.h"
#include "codegen/layouts/convolution_times.h"

#include <functional>
#include <optional>
#include <vector>

namespace hindcast::codegen {

struct ChannelsLast {
  capture::Joint joint;
  RunTime plain;  // of the original convolutions
  RunTime last;   // of the channels-last convolutions, including all copies
};

/// Whether the graph has convolutions; without any, with_channels_last() returns nullopt.
bool has_convolutions(const capture::Graph& graph);
bool has_backwards_of_convolutions(const capture::Graph& graph);

/// Rewrites the program, and measures the convolutions that were not measured before, with the sizes at capture. Results and gradients keep
/// their layout, and so do the operands of ops that are not convolutions, norms, poolings or pointwise.
///
/// Returns nullopt if the program has no convolution whose layout can be chosen (2-d, float32, on the CPU, contiguous, more than one image
/// and row), or has one whose operands have another layout, or a batch norm of few channels, which LibTorch would compute less exactly.
/// `costs`: the cost model for the program's kernels. `is_cancelled`: checked before each measurement; if true, returns nullopt.
std::optional<ChannelsLast> with_channels_last(const capture::Joint& joint, const CostModel& costs, Measured by = Measured::BySomeProcess,
                                               const std::function<bool()>& is_cancelled = {});

}  // namespace hindcast::codegen
