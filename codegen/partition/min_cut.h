#pragma once
// Min-cut partitioning: saves fewer bytes between forward and backward and recomputes the rest in the backward. Fused kernels are bound by
// memory traffic, so recomputation from tensors that they read anyway is nearly free.
//
// Each value that needs no tangent is an edge with its bytes as the capacity, leading to its readers. The source is everything that only
// the forward can have: inputs, random numbers, and instrs that must not be recomputed. The sink is everything that reads tangents. The
// values on the minimum cut are saved; the backward recomputes the rest of its side. Values that only the backward computes, from values of
// the forward, can be saved too: the mask of a relu has a quarter of the bytes.
//
// The rules of what is not recomputed (codegen/partition/bans.h), and the weights in favour of values near the backward, are those of
// PyTorch's min_cut_rematerialization_partition.

#include "codegen/partition/joint_uses.h"

#include <functional>
#include <vector>

namespace hindcast::codegen {

struct MinCutOptions {
  /// 0 to 1. 1: recompute only what is nearly free. 0: recompute everything that can be recomputed from primals. In between, the bytes are
  /// in proportion: ops are recomputed, the cheapest per byte first, until the rest fits. A smaller budget never saves more bytes.
  double memory_budget = 1;
  /// Instrs that are never recomputed, besides those with side effects or random numbers. Not called for views.
  std::function<bool(const capture::Instr&)> ban = nullptr;
  /// Positions of primals that stay alive in any case, such as parameters. Saving any other primal is assumed to keep it alive, so that one
  /// sum is saved rather than its four terms.
  std::vector<uint32_t> lasting = {};
};

/// Never saves more bytes (saved_bytes) than `standard`. Throws std::invalid_argument for a budget that is not in [0, 1].
capture::Partitioned min_cut(const capture::Joint& joint, const MinCutOptions& options = {});

}  // namespace hindcast::codegen
