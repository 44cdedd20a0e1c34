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

/// The same for leaves of a backward that get an incoming gradient as it is, as that of a residual, where kernels may read it too. `copies`:
/// the instrs that make the copies, each of which is worth it in a kernel with others alone.
struct OwnGradients {
  std::shared_ptr<const capture::Graph> graph;
  std::vector<uint32_t> copies = {};
};
OwnGradients with_own_gradients(const std::shared_ptr<const capture::Graph>& graph, const CostModel& costs);

}  // namespace hindcast::codegen
