#pragma once

#include "capture/graph/graph.h"

#include <span>

namespace hindcast::capture {

/// A program as part of another.
struct InlineRequest {
  const Graph& program;
  std::span<const ValueId> inputs;   // values of the other that take the place of the program's inputs; undefined where they are
  std::span<const ExprId> integers;  // expressions of the other that take the place of the program's integer symbols
  uint32_t origin = 0;               // of its instrs there
  size_t saved = 0;  // so many of the first inputs have the sizes that the program knows, whatever is known of them elsewhere
};

/// Appends the program's instrs to `graph` and returns its outputs there. The program's relations become relations of `graph`.
std::vector<ValueId> inline_program(Graph& graph, const InlineRequest& request);

}  // namespace hindcast::capture
