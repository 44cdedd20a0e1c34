#pragma once

#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"

#include <span>
#include <string>

namespace hindcast::tests {

/// 16 hexadecimal digits, of everything that a text's machine code depends on: the text, the headers that it includes directly or
/// indirectly, NVRTC's build, and the options for the architecture. Other headers do not count.
std::string hash_of(const codegen::cuda::Nvrtc& nvrtc, const std::string& text, int architecture,
                    std::span<const codegen::DeviceHeader> headers = codegen::device_library());

}  // namespace hindcast::tests
