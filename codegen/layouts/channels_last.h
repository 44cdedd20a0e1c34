#pragma once
// A joint program whose convolutions work channels-last: images are converted where they come in and where they go out, and not between.

#include "capture/function/joint.h"
#include "codegen/fuse/cost_model.h"
#include "codegen/layouts/convolution_times.h"

#include <functional>
#include <optional>
#include <vector>

namespace hindcast::codegen {

struct ChannelsLast {
  capture::Joint joint;
  RunTime plain;  // of the convolutions as they were
  RunTime last;   // of the convolutions as they are now, with all copies
};

/// Where it has none, with_channels_last() gives nothing.
bool has_convolutions(const capture::Graph& graph);
bool has_backwards_of_convolutions(const capture::Graph& graph);

/// Nothing: the program has no convolution whose layout is a choice (two dimensions, float32, on the CPU, contiguous, more than one image and
/// row), one whose operands lie otherwise, or a batch norm of few channels, which LibTorch would compute less exactly. Results and gradients
/// lie as before. What is no convolution, norm, pooling or expression of elements gets what it reads as it lay before. Sizes are those at
/// capture. Measures what was not measured before.
/// `costs`: of the kernels that the program will have. `is_cancelled`: asked before each convolution is measured; then there is nothing, too.
std::optional<ChannelsLast> with_channels_last(const capture::Joint& joint, const CostModel& costs, Measured by = Measured::BySomeProcess,
                                               const std::function<bool()>& is_cancelled = {});

}  // namespace hindcast::codegen
