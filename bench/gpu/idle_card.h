#pragma once
// The library's own card, on a driver that does nothing: the host's cost of a launch on its way to the driver.

#include "codegen/cuda/machine.h"

#include <string>

namespace hindcast::bench::gpu {

/// Null without NVRTC, which a card needs; `why_not` then tells. Call it where LibTorch's part for CUDA will not be loaded: it registers a
/// device of that type that has only streams.
const codegen::cuda::Machine* idle_card(std::string* why_not);

}  // namespace hindcast::bench::gpu
