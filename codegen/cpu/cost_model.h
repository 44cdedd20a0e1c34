#pragma once
// The CPU's cost model: when a kernel is faster than ATen.

#include "codegen/fuse/cost_model.h"

namespace hindcast::codegen::cpu {

const CostModel& cost_model();

/// Whether a result of so many bytes is written with non-temporal stores (nontemporal_stores.h). Not for 8 and 16 MiB, which a server's
/// last-level cache may still hold when they are read next.
bool are_nontemporal_stores_worth_it(int64_t bytes);

}  // namespace hindcast::codegen::cpu
