#pragma once
// Counts the kernels that hindcast launches, on any machine.

#include <cstdint>

#include "codegen/cuda/machine.h"

namespace hindcast::bench::gpu {

/// From now on all launches go to `machine`, and are counted: some nanoseconds each. Call before anything requests a backend.
void install_counted(const codegen::cuda::Machine& machine);

/// Launches so far; 0 if no machine was installed.
int64_t launched_kernels();

}  // namespace hindcast::bench::gpu
