#pragma once

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

/// Ops, writes to copies and sums whose results nobody reads go: what other passes have left, and what formulas compute in passing,
/// as the views through which they write. A gradient that waits at a node which does not read it goes as well; at the first node of a
/// segment, where the rest of a backward can be left to the nodes themselves, all that waits is there.
Rewrite dead_code(const capture::Graph& graph);

}  // namespace hindcast::codegen
