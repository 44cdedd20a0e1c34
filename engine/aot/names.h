#pragma once

#include "capture/function/joint.h"
#include "engine/aot/aot_options.h"

namespace hindcast::engine {

/// Names of the joint program's values, as FX has them: primals_1, tangents_1, add_2. Both halves keep the numbers of values, and a value
/// that the backward computes again has its name there too.
capture::ValueNames name_values(const capture::Joint& joint);

/// The joint program of a function that reads `lifted` from outside, with AotOptions::tensor_names behind the names of its arguments. What
/// is no letter, digit or underscore becomes an underscore: "layer.0.weight" is layer_0_weight.
capture::Joint with_tensor_names(capture::Joint joint, const AotOptions& options, const std::vector<at::Tensor>& lifted);

/// A copy with these names.
std::shared_ptr<const capture::Graph> with_names(const std::shared_ptr<const capture::Graph>& graph, capture::ValueNames names);

}  // namespace hindcast::engine
