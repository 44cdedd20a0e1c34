// The kernels as NVRTC compiles them: the same text, for three generations of cards. Registers and spills are what ptxas says of them.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>

#include "tests/cuda_emulator/kernel_files.h"
#include "tests/device/nvrtc.h"

namespace hindcast::tests::cuda {
namespace {

struct Use {
  int registers = -1;
  int spilled_bytes = -1;  // stored and loaded
};

/// By kernel, from the log of --ptxas-options=-v.
std::map<std::string, Use> uses_in(const std::string& log) {
  std::map<std::string, Use> uses;
  const std::regex line(R"(Compiling entry function '(\w+)'|(\d+) bytes spill stores, (\d+) bytes spill loads|Used (\d+) registers)");
  std::string kernel;
  for (std::sregex_iterator found(log.begin(), log.end(), line), end; found != end; ++found) {
    if ((*found)[1].matched) kernel = (*found)[1];
    if ((*found)[2].matched) uses[kernel].spilled_bytes = std::stoi((*found)[2]) + std::stoi((*found)[3]);
    if ((*found)[4].matched) uses[kernel].registers = std::stoi((*found)[4]);
  }
  return uses;
}

std::vector<Nvrtc::Header> headers() {
  std::vector<Nvrtc::Header> all = device_headers();
  const std::string list = "tests/cuda_emulator/functors.inc";
  std::stringstream text;
  text << std::ifstream(std::filesystem::path(HINDCAST_SOURCE_DIR) / list).rdbuf();
  all.push_back({list, text.str()});
  return all;
}

class MachineCode : public testing::TestWithParam<const char*> {};

TEST_P(MachineCode, SpillsNoRegisters) {
  std::string why_not;
  const std::unique_ptr<Nvrtc> nvrtc = Nvrtc::load(why_not);
  if (!nvrtc) GTEST_SKIP() << "no NVRTC: " << why_not;
  for (const KernelFile& file : kKernelFiles) {
    const auto result = nvrtc->compile(text_of(file.name), headers(),
                                       {std::string("--gpu-architecture=") + GetParam(), "--std=c++17", "--ptxas-options=-v"});
    ASSERT_EQ(result.code, 0) << result.log.substr(0, 4000);
    EXPECT_GT(result.cubin_bytes, 0);
    const auto uses = uses_in(result.log);
    for (const std::string& kernel : file.kernels) {
      ASSERT_TRUE(uses.contains(kernel)) << kernel << " is not in the log:\n" << result.log;
      EXPECT_EQ(uses.at(kernel).spilled_bytes, 0) << kernel;
      EXPECT_GT(uses.at(kernel).registers, 0) << kernel;
      EXPECT_LE(uses.at(kernel).registers, 255) << kernel;
      RecordProperty(kernel + "_registers", uses.at(kernel).registers);
    }
  }
}

TEST_P(MachineCode, SpillsAreSeenWhereThereAreSome) {
  std::string why_not;
  const std::unique_ptr<Nvrtc> nvrtc = Nvrtc::load(why_not);
  if (!nvrtc) GTEST_SKIP() << "no NVRTC: " << why_not;
  // 64 numbers alive at once, in 24 registers.
  const std::string text =
      "extern \"C\" __global__ void spills(const float* in, float* out) {\n"
      "  float a[64];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) a[i] = in[i * 32 + threadIdx.x];\n"
      "  __syncthreads();\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) out[i * 32 + threadIdx.x] = a[i] * a[63 - i];\n"
      "}\n";
  const auto result =
      nvrtc->compile(text, {}, {std::string("--gpu-architecture=") + GetParam(), "--std=c++17", "--maxrregcount=24", "--ptxas-options=-v"});
  ASSERT_EQ(result.code, 0) << result.log;
  const auto uses = uses_in(result.log);
  ASSERT_TRUE(uses.contains("spills")) << result.log;
  EXPECT_GT(uses.at("spills").spilled_bytes, 0) << result.log;
}

INSTANTIATE_TEST_SUITE_P(Architectures, MachineCode, testing::Values("sm_80", "sm_90", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hindcast::tests::cuda
