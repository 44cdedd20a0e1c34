#pragma once
// CUDA text to a module, by g++ in another process. The text is compiled unchanged, after a header.

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda_emulator/runtime/module.h"

namespace hindcast::tests::cuda {

/// The text contains the compiler's messages.
class CompileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why nothing can be compiled here; empty if it can.
std::string why_no_compiler();

/// Compiles these kernels, which are extern "C". The same text is compiled once; its module lives until the program ends.
const Module& compile(const std::string& text, const std::vector<std::string>& kernels);

}  // namespace hindcast::tests::cuda
