#pragma once

#include "capture/function/joint.h"

namespace hindcast::engine {

/// Names of the joint program's values, as FX has them: primals_1, tangents_1, add_2. Both halves keep the numbers of values, and a value
/// that the backward computes again has its name there too.
capture::ValueNames name_values(const capture::Joint& joint);

/// A copy with these names.
std::shared_ptr<const capture::Graph> with_names(const std::shared_ptr<const capture::Graph>& graph, capture::ValueNames names);

}  // namespace hindcast::engine
