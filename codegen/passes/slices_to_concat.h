#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Slices that together are all of a tensor, each element in one of them, give it a gradient each, as large as all of it: their sum is the
/// `cat` of what flows into the slices, or the `stack` where single indices are selected.
///
/// All bits stay but the sign of zeros: -0 to which 0 is added is 0.
Rewrite slices_to_concat(const capture::Graph& graph);

}  // namespace hindcast::codegen
