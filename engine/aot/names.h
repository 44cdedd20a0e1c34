#pragma once

#include "capture/function/joint.h"
#include "hindcast/aot_options.h"

namespace hindcast::engine {

/// Names of the joint program's values in FX's style: primals_1, tangents_1, add_2. Both programs keep the joint program's value numbers,
/// so a value that the backward recomputes has the same name there.
capture::ValueNames name_values(const capture::Joint& joint);

/// Names the joint program's inputs from outside, `lifted`, by AotOptions::tensor_names, after the names of the arguments. Characters other
/// than letters, digits and underscores become underscores: "layer.0.weight" is layer_0_weight.
capture::Joint with_tensor_names(capture::Joint joint, const AotOptions& options, const std::vector<at::Tensor>& lifted);

/// A copy with these names.
std::shared_ptr<const capture::Graph> with_names(const std::shared_ptr<const capture::Graph>& graph, capture::ValueNames names);

}  // namespace hindcast::engine
