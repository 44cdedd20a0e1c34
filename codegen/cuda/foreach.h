#pragma once

#include "codegen/cuda/kernels.h"
#include "codegen/kernel/foreach_sets.h"

namespace hindcast::codegen::cuda {

/// As Backend::run_foreach(), on the current stream of the sets' device.
void run_foreach(const Body& body, const CudaKernel& kernel, const ForeachSets& sets);

}  // namespace hindcast::codegen::cuda
