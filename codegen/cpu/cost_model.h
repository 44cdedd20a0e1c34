#pragma once
// When a kernel is faster than ATen on a CPU.

#include "codegen/fuse/cost_model.h"

namespace hindcast::codegen::cpu {

const CostModel& cost_model();

}  // namespace hindcast::codegen::cpu
