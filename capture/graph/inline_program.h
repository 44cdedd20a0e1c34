#pragma once

#include "hindcast/graph.h"

#include <span>
#include <vector>

namespace hindcast::capture {

/// A program to inline into another graph.
struct InlineRequest {
  const Graph& program;
  std::span<const ValueId> inputs;   // values of the outer graph that replace the program's inputs; undefined where those are
  std::span<const ExprId> integers;  // expressions of the outer graph that replace the program's integer symbols
  uint32_t origin = 0;               // of the inlined instrs
  std::vector<bool> is_kept = {};    // by output: a leaf may keep the tensor as its gradient, so no other output may have its memory
  size_t saved = 0;  // this many of the first inputs get the sizes that the program knows, whatever the outer graph knows of them
};

/// Appends the program's instrs to `graph` and returns its outputs there. The program's relations become relations of `graph`.
std::vector<ValueId> inline_program(Graph& graph, const InlineRequest& request);

}  // namespace hindcast::capture
