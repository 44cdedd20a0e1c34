#pragma once
// Kernels compiled by NVRTC and ptxas, for cards of three generations. No card is needed.

#include "codegen/cuda/nvrtc.h"

#include <array>
#include <map>
#include <string>
#include <string_view>

namespace hindcast::tests {

/// A100, H100 and H200, B200.
inline constexpr std::array kArchitectures = {80, 90, 100};

/// The compiler for tests; skips with the reason if there is none.
#define HC_GET_NVRTC(name)                                                      \
  std::string why_not;                                                          \
  const codegen::cuda::Nvrtc* const name = codegen::cuda::Nvrtc::get(&why_not); \
  if (name == nullptr) GTEST_SKIP() << why_not

/// What ptxas reports of a kernel, with spills as stored and loaded bytes.
struct KernelUse {
  int registers = -1;
  int stack_bytes = 0;
  int spilled_bytes = 0;
  int shared_bytes = 0;
  friend bool operator==(const KernelUse&, const KernelUse&) = default;
};

/// By kernel, from the log of kernel_options().
std::map<std::string, KernelUse> uses_in(const std::string& log);

/// Instructions on global memory that move 16 bytes per thread, as in the machine code.
struct WideAccesses {
  int loads = 0;
  int stores = 0;
};

/// nvdisasm, from the triton that PyPI's torch installs, or on the PATH. Empty: there is none; `why_not` tells why.
std::string disassembler(std::string* why_not);
/// The machine code's instructions, as text.
std::string disassembled(std::string_view object);
/// By kernel, from disassembled(): each kernel's code, independent of its name and of what else was compiled with it.
std::map<std::string, std::string> kernels_in(const std::string& instructions);
/// By kernel, from disassembled().
std::map<std::string, WideAccesses> wide_accesses_in(const std::string& instructions);

}  // namespace hindcast::tests
