#pragma once
// CUDA text to a module, by g++ out of process. The text is compiled as it is; only a header comes before it.

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda_emulator/runtime/module.h"

namespace hindcast::tests::cuda {

/// Shows the compiler's messages.
class CompileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why nothing can be compiled here; empty where it can.
std::string why_no_compiler();

/// With these kernels, which are extern "C". The same text is compiled once; its module lives until the program ends.
const Module& compile(const std::string& text, const std::vector<std::string>& kernels);

}  // namespace hindcast::tests::cuda
