#pragma once
// When a kernel is faster than ATen on a CPU.

#include "codegen/fuse/cost_model.h"

namespace hindcast::codegen::cpu {

const CostModel& cost_model();

/// A result of so many bytes is written past the caches (nontemporal_stores.h). Of 8 and 16 MiB, a server's last cache may still hold what
/// is read next.
bool are_nontemporal_stores_worth_it(int64_t bytes);

}  // namespace hindcast::codegen::cpu
