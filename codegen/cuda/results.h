#pragma once

#include "codegen/kernel/call_frame.h"

namespace hindcast::codegen::cuda {

/// Allocates from LibTorch's allocator of the device.
const ResultMaker& result_maker();

}  // namespace hindcast::codegen::cuda
