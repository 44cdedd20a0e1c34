#pragma once

#include <string>

namespace hindcast::tests {

/// Loads LibTorch's part for CUDA, and makes the first card's context. Empty, or why there is none.
std::string find_gpu();

}  // namespace hindcast::tests
