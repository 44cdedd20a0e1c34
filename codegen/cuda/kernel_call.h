#pragma once

#include "codegen/cuda/kernels.h"
#include "codegen/fuse/group.h"
#include "codegen/plan/plan.h"

#include <memory>

namespace hindcast::codegen::cuda {

/// Runs a group's kernel: makes its results, and launches on the device's current stream.
std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CudaKernel> kernel);

}  // namespace hindcast::codegen::cuda
