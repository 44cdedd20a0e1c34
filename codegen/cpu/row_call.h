#pragma once

#include "codegen/cpu/kernel_call.h"

namespace hindcast::codegen::cpu {

/// Runs the kernel of a group by rows. Sums over rows are taken by blocks, then over the blocks of a thread, then over the
/// threads' shares, in order: the same for the same sizes and number of threads.
std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CpuKernel> kernel);

}  // namespace hindcast::codegen::cpu
