#pragma once
// The kernels of some network patterns, and what NVRTC compiles them to.

#include "codegen/cuda/nvrtc.h"
#include "tests/support/machine_code.h"

#include <map>
#include <string>
#include <vector>

namespace hindcast::tests {

/// One kernel of a pattern's backward.
struct PatternKernel {
  std::string pattern;
  std::string whole;               // its text with all entry points
  std::vector<std::string> texts;  // as compiled on a card, in the order of compilation
};
std::vector<PatternKernel> kernels_of_patterns();

struct Made {
  KernelUse use;
  WideAccesses accesses;
};

struct TableRow {
  std::string pattern, kernel;
  std::map<int, Made> by_architecture;
};
/// Throws if there is no disassembler.
std::vector<TableRow> rows_of(const codegen::cuda::Nvrtc& nvrtc);

/// As printed in the docs.
std::string markdown_of(const std::vector<TableRow>& rows);

}  // namespace hindcast::tests
