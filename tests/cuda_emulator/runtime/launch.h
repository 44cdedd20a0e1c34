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

/// While it lives, launches run only so many of their first blocks and of their last ones: of large tensors what is at their ends.
class WithBlocksAtEnds {
 public:
  explicit WithBlocksAtEnds(uint64_t blocks);
  ~WithBlocksAtEnds();
  WithBlocksAtEnds(const WithBlocksAtEnds&) = delete;
  WithBlocksAtEnds& operator=(const WithBlocksAtEnds&) = delete;
};

/// Bytes of global memory that launches touched, each byte once for every launch that read it, and once for every one that wrote it: what
/// a card moves whose cache holds all that a launch reads twice.
struct Traffic {
  uint64_t read = 0, written = 0;
};
/// Of all launches since this was asked last.
Traffic take_traffic();

/// As above, of values. They must have the very types of the kernel's parameters.
template <class... Arguments>
void launch_with(const Kernel& kernel, const LaunchShape& shape, Arguments... arguments) {
  void* array[] = {&arguments...};
  launch(kernel, shape, array);
}

}  // namespace hindcast::tests::cuda
