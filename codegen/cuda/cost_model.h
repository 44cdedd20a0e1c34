#pragma once

#include "codegen/fuse/cost_model.h"

namespace hindcast::codegen::cuda {

/// What pays on a card. A launch costs as much time as some megabytes of memory, and ATen's single kernels go at the speed of memory: what
/// fusion saves is launches, and memory that is written only to be read again.
const CostModel& cost_model();

}  // namespace hindcast::codegen::cuda
