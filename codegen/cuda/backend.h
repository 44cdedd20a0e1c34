#pragma once

#include "codegen/kernel/backend.h"

namespace hindcast::codegen::cuda {

/// The CUDA backend: NVRTC compiles the kernels, and they run on the device's current stream.
const Backend& cuda_backend();
/// Whether a test's machine handles this device's tensors in place of the device's own backend.
bool stands_in_for(c10::DeviceType device);

}  // namespace hindcast::codegen::cuda
