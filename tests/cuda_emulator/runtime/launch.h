#pragma once
// Runs a kernel on the CPU, each thread on a fibre, one after the other: a thread runs until it ends or waits for others.

#include <cstdint>

#include "tests/cuda_emulator/runtime/module.h"

namespace hindcast::tests::cuda {

struct LaunchShape {
  Dim3 grid, block;
  uint32_t shared_bytes = 0;  // of dynamic shared memory
};

/// With cuLaunchKernel's array of arguments, each entry the address of one. Throws KernelError at the first error that the kernel makes.
void launch(const Kernel& kernel, const LaunchShape& shape, void** arguments);

/// As above, of values. They must have the very types of the kernel's parameters.
template <class... Arguments>
void launch_with(const Kernel& kernel, const LaunchShape& shape, Arguments... arguments) {
  void* array[] = {&arguments...};
  launch(kernel, shape, array);
}

}  // namespace hindcast::tests::cuda
