#pragma once

#include "codegen/kernel/backend.h"

namespace hindcast::codegen::cpu {

/// Kernels that Clang compiles, on LibTorch's intra-op threads.
const Backend& cpu_backend();

}  // namespace hindcast::codegen::cpu
