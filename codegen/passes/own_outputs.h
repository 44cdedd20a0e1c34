#pragma once
// Gradients that leaves take. Where one gradient goes to several leaves, or is the incoming one, all but one of them copy it once the
// program has run: each copy reads it from memory again. A kernel that makes the gradient writes all of them while it has it.

#include "capture/graph/graph.h"

#include <cstdint>
#include <memory>
#include <span>

namespace hindcast::codegen {

/// A copy of the program in which these of its outputs, by position, are tensors of their own: not an input, nor another of these. Only
/// real numbers that lie densely; the others are as they were. The given graph where nothing changes.
std::shared_ptr<const capture::Graph> with_own_outputs(const std::shared_ptr<const capture::Graph>& graph,
                                                       std::span<const uint32_t> outputs);

}  // namespace hindcast::codegen
