#pragma once

#include <string>

namespace hindcast::tests {

/// Loads LibTorch's part for CUDA, and creates the first card's context. Returns "", or why there is none.
std::string find_gpu();

}  // namespace hindcast::tests
