#pragma once

#include "codegen/cpu/clang/compiler.h"

#include <span>

namespace hindcast::codegen {

/// The headers of codegen/device as they were when hindcast was built, under the names by which kernels include them.
std::span<const SourceFile> device_library();

}  // namespace hindcast::codegen
