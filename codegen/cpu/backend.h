#pragma once

#include "codegen/kernel/backend.h"

namespace hindcast::codegen::cpu {

/// The CPU backend: Clang compiles the kernels, and they run on LibTorch's intra-op threads.
const Backend& cpu_backend();

}  // namespace hindcast::codegen::cpu
