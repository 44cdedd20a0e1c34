// The kernels as NVRTC compiles them: the same text, for three generations of cards. Registers and spills as reported by ptxas.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "codegen/kernel/device_library.h"
#include "tests/cuda_emulator/kernel_files.h"
#include "tests/support/machine_code.h"

namespace hindcast::tests::cuda {
namespace {

using codegen::DeviceHeader;

/// Those of the device library, and the list that a kernel here includes.
std::vector<DeviceHeader> headers() {
  static const std::string list = [] {
    std::ifstream in(std::filesystem::path(HINDCAST_SOURCE_DIR) / "tests/cuda_emulator/functors.inc");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const auto library = codegen::device_library();
  std::vector<DeviceHeader> all(library.begin(), library.end());
  all.push_back({"tests/cuda_emulator/functors.inc", list});
  return all;
}

class MachineCode : public testing::TestWithParam<int> {};

TEST_P(MachineCode, SpillsNoRegisters) {
  HC_GET_NVRTC(nvrtc);
  for (const KernelFile& file : kKernelFiles) {
    const auto code = nvrtc->compile(text_of(file.name), headers(), codegen::cuda::kernel_options(GetParam()));
    const auto uses = uses_in(code.log);
    for (const std::string& kernel : file.kernels) {
      ASSERT_TRUE(uses.contains(kernel)) << kernel << " is not in the log:\n" << code.log;
      EXPECT_EQ(uses.at(kernel).spilled_bytes, 0) << kernel;
      EXPECT_GT(uses.at(kernel).registers, 0) << kernel;
      EXPECT_LE(uses.at(kernel).registers, 255) << kernel;
    }
  }
}

TEST_P(MachineCode, SpillsAreSeenWhereThereAreSome) {
  HC_GET_NVRTC(nvrtc);
  // 64 live numbers in 24 registers.
  const std::string text =
      "extern \"C\" __global__ void spills(const float* in, float* out) {\n"
      "  float a[64];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) a[i] = in[i * 32 + threadIdx.x];\n"
      "  __syncthreads();\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) out[i * 32 + threadIdx.x] = a[i] * a[63 - i];\n"
      "}\n";
  std::vector<std::string> options = codegen::cuda::kernel_options(GetParam());
  options.emplace_back("--maxrregcount=24");
  const auto code = nvrtc->compile(text, {}, options);
  const auto uses = uses_in(code.log);
  ASSERT_TRUE(uses.contains("spills")) << code.log;
  EXPECT_GT(uses.at("spills").spilled_bytes, 0) << code.log;
  EXPECT_GT(uses.at("spills").stack_bytes, 0) << code.log;
}

TEST_P(MachineCode, SharedMemoryIsSeen) {
  HC_GET_NVRTC(nvrtc);
  const auto uses = uses_in(nvrtc->compile(text_of("reductions"), headers(), codegen::cuda::kernel_options(GetParam())).log);
  EXPECT_GT(uses.at("sums_of_rows").shared_bytes, 0);
  EXPECT_EQ(uses.at("sum_by_atomics").shared_bytes, 0);
}

TEST_P(MachineCode, AccessesOf16BytesAreCountedByKernel) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  const auto code = nvrtc->compile(text_of("pointwise"), headers(), codegen::cuda::kernel_options(GetParam()));
  const std::string instructions = disassembled(code.object);
  const auto accesses = wide_accesses_in(instructions);
  ASSERT_EQ(accesses.size(), 3U) << instructions;
  EXPECT_EQ(accesses.at("by_fours").loads, 2) << instructions;
  EXPECT_EQ(accesses.at("by_fours").stores, 1) << instructions;
  EXPECT_EQ(accesses.at("by_grid").loads, 0) << instructions;
  EXPECT_EQ(accesses.at("by_grid").stores, 0) << instructions;
  EXPECT_EQ(accesses.at("flip_bytes").loads, 1) << instructions;
  EXPECT_EQ(accesses.at("flip_bytes").stores, 1) << instructions;
}

INSTANTIATE_TEST_SUITE_P(Architectures, MachineCode, testing::ValuesIn(kArchitectures),
                         [](const auto& info) { return "sm_" + std::to_string(info.param); });

}  // namespace
}  // namespace hindcast::tests::cuda
