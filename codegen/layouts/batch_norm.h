#pragma once
// Decomposes batch norms of channels-last images into sums over all dims but the channels, and pointwise expressions, which kernels can
// compute. LibTorch's own kernels for that layout have one accumulator per channel, and lose a digit.

#include "codegen/fuse/cost_model.h"
#include "hindcast/graph.h"

namespace hindcast::codegen {

/// Whether the instr is a batch norm that computes the mean and variance of its input, or a batch norm's backward.
bool sums_over_images(const capture::Instr& instr);

/// Whether such an instr can be decomposed. Not if it has non-constant arguments, only one image or row, or too few channels for kernels.
bool has_ops_for_sums(const capture::Graph& graph, const capture::Instr& instr, const CostModel& costs);

/// Adds the decomposition of `instr` to the graph. Its images must be channels-last, of four dims and float32. Numbers that depend on sizes
/// become expressions of the graph's symbols.
void add_batch_norm(capture::Graph& graph, const capture::Instr& instr);

}  // namespace hindcast::codegen
