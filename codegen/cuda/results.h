#pragma once

#include "codegen/kernel/call_frame.h"

namespace hindcast::codegen::cuda {

/// Memory comes from LibTorch's allocator of the device.
const ResultMaker& result_maker();

}  // namespace hindcast::codegen::cuda
