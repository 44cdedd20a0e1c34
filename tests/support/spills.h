#pragma once
// Kernels' texts by NVRTC, and which of them do not stay in registers.

#include <string>
#include <vector>

#include "tests/support/machine_code.h"

namespace hindcast::codegen::cuda {
class Nvrtc;
}

namespace hindcast::tests {

struct Spill {
  int architecture = 0;
  std::string kernel;
  KernelUse use;
  std::string text;
};

/// Compiles each text for one architecture in turn, or, with HINDCAST_ALL_ARCHITECTURES=1, for all of them, on two threads. What saves more
/// than functions of CUDA's own do where they are called spills. Throws NVRTC's words where one does not compile.
std::vector<Spill> spills_of(const codegen::cuda::Nvrtc& nvrtc, const std::vector<std::string>& texts);

/// Fails the test for each.
void expect_no_spills(const codegen::cuda::Nvrtc& nvrtc, const std::vector<std::string>& texts);

}  // namespace hindcast::tests
