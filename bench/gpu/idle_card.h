#pragma once
// The library's own card, behind a driver that does nothing: what a launch costs the host on its way to the driver.

#include "codegen/cuda/machine.h"

#include <string>

namespace hindcast::bench::gpu {

/// Null without NVRTC, which a card needs, and then why. Call it where LibTorch's part for CUDA will not be loaded: LibTorch is told of a
/// device of its type that has streams and nothing else.
const codegen::cuda::Machine* idle_card(std::string* why_not);

}  // namespace hindcast::bench::gpu
