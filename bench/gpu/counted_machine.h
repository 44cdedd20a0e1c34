#pragma once
// How many kernels hindcast launches, on whatever machine.

#include <cstdint>

#include "codegen/cuda/machine.h"

namespace hindcast::bench::gpu {

/// From now on all launches go to `machine`, and are counted: some nanoseconds each. Before anything asks for a backend.
void install_counted(const codegen::cuda::Machine& machine);

/// Launches so far; 0 where no machine was installed.
int64_t launched_kernels();

}  // namespace hindcast::bench::gpu
