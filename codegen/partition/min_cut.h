#pragma once
// Fewer bytes between forward and backward, for work that a fused backward hardly notices: a kernel waits for memory, so what it computes
// again from tensors that it reads anyway is nearly free.
//
// Each value that needs no tangent is an edge with its bytes as the capacity; what reads it lies behind it. The source is all that only the
// forward can have: inputs, random numbers, what is not to be computed again. The sink is what reads tangents. The least cut
// between them is what is saved; the backward computes the rest of its side again. Values that only the backward computes, but of the
// forward's, can be saved too: the mask of a relu has a quarter of the bytes.
//
// The rules of what is not computed again (codegen/partition/bans.h), and the prices in favour of values near the backward, are those of
// PyTorch's min_cut_rematerialization_partition.

#include "codegen/partition/joint_uses.h"

#include <functional>
#include <vector>

namespace hindcast::codegen {

struct MinCutOptions {
  /// 1: what is nearly free to compute again is not saved. 0: all that can be computed again from primals is. In between, bytes in
  /// proportion: ops are computed again, the cheapest for its bytes first, until the rest fits. A smaller budget never saves more.
  double memory_budget = 1;
  /// Instrs that are never computed again, beside those that stay where they are. Not asked about views.
  std::function<bool(const capture::Instr&)> ban = nullptr;
  /// Positions of primals that live on in any case, such as parameters. Of others the default supposes that to save one keeps it alive:
  /// rather one sum is saved than its four terms.
  std::vector<uint32_t> lasting = {};
};

/// Never saves more bytes (saved_bytes) than `standard`. Throws std::invalid_argument for a budget that is not in [0, 1].
capture::Partitioned min_cut(const capture::Joint& joint, const MinCutOptions& options = {});

}  // namespace hindcast::codegen
