#pragma once
// Batch norms of images that lie channels-last, as other ops: sums over all dims but that of the channels, and expressions of elements.
// Kernels are made of both. LibTorch's own kernels for that layout have one accumulator a channel, and lose a digit.

#include "capture/graph/graph.h"
#include "codegen/fuse/cost_model.h"

namespace hindcast::codegen {

/// A batch norm that takes mean and variance of its input, or the gradients of any batch norm.
bool sums_over_images(const capture::Instr& instr);

/// One of them that there are such ops for. Not one with arguments that are no constants, of one image or row alone, or with too few
/// channels for kernels.
bool has_ops_for_sums(const capture::Graph& graph, const capture::Instr& instr, const CostModel& costs);

/// Adds them to the graph. They make the results of `instr`, whose images, four dims and float32, lie channels-last. Numbers that depend on
/// sizes become expressions of the graph's symbols.
void add_batch_norm(capture::Graph& graph, const capture::Instr& instr);

}  // namespace hindcast::codegen
