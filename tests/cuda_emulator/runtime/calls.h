#pragma once
// The functions that running kernels call.

#include "tests/cuda_emulator/text/calls.h"

namespace hindcast::tests::cuda {

const hindcast_emulator::Calls& calls_for_kernels();

}  // namespace hindcast::tests::cuda
