#pragma once

#include "codegen/cpu/kernel_call.h"

namespace hindcast::codegen::cpu {

/// Runs the row kernel of a group. Results over rows are computed per block of rows, then merged over the blocks of a thread, then over the
/// threads, in order: results are deterministic for the same sizes and number of threads.
std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CpuKernel> kernel);

}  // namespace hindcast::codegen::cpu
