#pragma once
// The kernels of some patterns of networks, and what NVRTC makes of them.

#include "codegen/cuda/nvrtc.h"
#include "tests/support/machine_code.h"

#include <map>
#include <string>
#include <vector>

namespace hindcast::tests {

/// One of the kernels that a pattern's backward becomes.
struct PatternKernel {
  std::string pattern;
  std::string whole;               // its text with all entry points
  std::vector<std::string> texts;  // as they are compiled on a card, first the one that is compiled first
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
/// Throws where there is no disassembler.
std::vector<TableRow> rows_of(const codegen::cuda::Nvrtc& nvrtc);

/// As it stands in the docs.
std::string markdown_of(const std::vector<TableRow>& rows);

}  // namespace hindcast::tests
