#pragma once

#include "codegen/cuda/nvrtc.h"
#include "tests/machine_code/uses_as_text.h"

#include <string>
#include <vector>

namespace hindcast::tests {

struct TextFor {
  const std::string* text;
  int architecture;
};

/// Compiles on all cores. Throws NVRTC's message if a text does not compile.
std::vector<Uses> compile_uses(const codegen::cuda::Nvrtc& nvrtc, const std::vector<TextFor>& texts);

}  // namespace hindcast::tests
