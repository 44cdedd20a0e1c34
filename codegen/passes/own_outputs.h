#pragma once
// Gradients that leaves take. Where one gradient goes to several leaves, or is the incoming one, all but one of them copy it once the
// program has run: each copy reads it from memory again. A kernel that makes the gradient writes all of them while it has it.

#include "capture/graph/graph.h"
#include "codegen/fuse/cost_model.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hindcast::codegen {

/// A copy of the program in which these of its outputs, by position, are tensors of their own: not an input, nor another of these. Only
/// real numbers that lie densely; the others are as they were. The given graph where nothing changes.
std::shared_ptr<const capture::Graph> with_own_outputs(const std::shared_ptr<const capture::Graph>& graph,
                                                       std::span<const uint32_t> outputs);

/// Incoming gradients that leaves of a backward get as they are, as that of a residual, and that kernels may read too. None where user code
/// runs in between.
std::vector<capture::ValueId> gradients_for_leaves(const capture::Graph& graph, const CostModel& costs);

/// The same for these: their leaves and what may be in kernels read copies, which are made first of all. `copies`: by gradient.
struct OwnGradients {
  std::shared_ptr<const capture::Graph> graph;
  std::vector<capture::ValueId> copies = {};
};
OwnGradients with_own_gradients(const std::shared_ptr<const capture::Graph>& graph, std::span<const capture::ValueId> gradients);

}  // namespace hindcast::codegen
