#pragma once

#include "codegen/fuse/cost_model.h"

namespace hindcast::codegen::cuda {

/// The cost model of a GPU. A launch costs as much time as some megabytes of memory traffic, and ATen's single kernels are bound by memory:
/// fusion saves launches, and writes of intermediate results.
const CostModel& cost_model();

}  // namespace hindcast::codegen::cuda
