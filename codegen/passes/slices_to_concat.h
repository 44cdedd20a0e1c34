#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// If slices partition a tensor, the gradient of each slice is as large as the whole tensor, and their sum is replaced by the `cat` of the
/// slices' incoming gradients, or by the `stack` if single indices are selected.
///
/// Preserves all bits but the sign of zeros: -0 plus 0 is 0.
Rewrite slices_to_concat(const capture::Graph& graph);

}  // namespace hindcast::codegen
