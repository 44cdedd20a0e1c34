#pragma once

#include "codegen/cpu/kernel_call.h"

#include <memory>

namespace hindcast::codegen::cpu {

/// Runs the kernel of a group with a matrix product. Either the kernel computes the product, or ATen does and the kernel computes the rest:
/// whichever was faster when both were timed on the first calls with similar sizes (product_times.h).
std::unique_ptr<const OpCall> make_product_call(const Group& group, std::shared_ptr<const CpuKernel> kernel);

}  // namespace hindcast::codegen::cpu
