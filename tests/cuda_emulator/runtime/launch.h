#pragma once
// Runs a kernel on the CPU, each thread on a fibre, one at a time: a thread runs until it ends or waits for others.

#include <cstdint>

#include "tests/cuda_emulator/runtime/module.h"

namespace hindcast::tests::cuda {

struct LaunchShape {
  Dim3 grid, block;
  uint32_t shared_bytes = 0;  // of dynamic shared memory
};

/// `arguments` is cuLaunchKernel's array, each entry the address of one. Throws KernelError at the kernel's first error.
void launch(const Kernel& kernel, const LaunchShape& shape, void** arguments);

/// While it lives, launches run only this many of their first and of their last blocks: for large tensors, their ends.
class WithBlocksAtEnds {
 public:
  explicit WithBlocksAtEnds(uint64_t blocks);
  ~WithBlocksAtEnds();
  WithBlocksAtEnds(const WithBlocksAtEnds&) = delete;
  WithBlocksAtEnds& operator=(const WithBlocksAtEnds&) = delete;
};

/// Bytes of global memory that launches touched, each byte once per launch that read it, and once per launch that wrote it: the traffic of
/// a card whose cache holds everything that a launch reads twice.
struct Traffic {
  uint64_t read = 0, written = 0;
};
/// Sums over all launches since the last call.
Traffic take_traffic();

/// The same with values, whose types must be exactly those of the kernel's parameters.
template <class... Arguments>
void launch_with(const Kernel& kernel, const LaunchShape& shape, Arguments... arguments) {
  void* array[] = {&arguments...};
  launch(kernel, shape, array);
}

}  // namespace hindcast::tests::cuda
