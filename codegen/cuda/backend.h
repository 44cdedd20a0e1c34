#pragma once

#include "codegen/kernel/backend.h"

namespace hindcast::codegen::cuda {

/// Kernels that NVRTC compiles, on the device's current stream.
const Backend& cuda_backend();
/// A test's machine takes the tensors that another backend would.
bool stands_in_for(c10::DeviceType device);

}  // namespace hindcast::codegen::cuda
