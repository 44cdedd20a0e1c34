#pragma once
// Gives each leaf a gradient tensor of its own. If one gradient goes to several leaves, or is the incoming gradient, all but one leaf would
// copy it after the program has run, and each copy would read it from memory again. As outputs of the program, the kernel that computes the
// gradient writes the copies too.

#include "codegen/fuse/cost_model.h"
#include "hindcast/graph.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hindcast::codegen {

/// A copy of the program in which these outputs, given by position, are distinct tensors: neither inputs nor each other. Only dense tensors
/// of real numbers are changed. Returns the given graph if nothing changes.
std::shared_ptr<const capture::Graph> with_own_outputs(const std::shared_ptr<const capture::Graph>& graph,
                                                       std::span<const uint32_t> outputs);

/// Incoming gradients that leaves of a backward get unchanged, for example through a residual connection, and that kernels may read too.
/// Empty if user code runs during the backward.
std::vector<capture::ValueId> gradients_for_leaves(const capture::Graph& graph, const CostModel& costs);

/// A copy of the graph in which the leaves, and ops that may be in kernels, read copies of these gradients, made at its start. `copies` is
/// indexed by gradient.
struct OwnGradients {
  std::shared_ptr<const capture::Graph> graph;
  std::vector<capture::ValueId> copies = {};
};
OwnGradients with_own_gradients(const std::shared_ptr<const capture::Graph>& graph, std::span<const capture::ValueId> gradients);

}  // namespace hindcast::codegen
