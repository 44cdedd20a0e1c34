#pragma once

#include "codegen/cuda/kernel_call.h"

namespace hindcast::codegen::cuda {

/// As make_kernel_call(), for a row kernel.
std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CudaKernel> kernel);

}  // namespace hindcast::codegen::cuda
