#include "tests/cuda_emulator/restrict_trap.h"

#include <gmock/gmock.h>

#include <regex>

#include "codegen/kernel/device_library.h"
#include "tests/cuda_emulator/emulator_test.h"

namespace hindcast::tests::cuda {
namespace {

/// Like the backend's kernels: one parameter, a struct.
std::string kernel(const std::string& body, const std::string& before = "") {
  return "struct Call { float* out; int n; };\n" + before + "extern \"C\" __global__ void __launch_bounds__(64) k(const Call call) {\n" +
         body + "\n}\n";
}

/// Empty if it is not refused.
std::string why_refused(const std::string& text) {
  try {
    compile(refusing_restrict(text), {"k"});
    return "";
  } catch (const CompileError& error) {
    return error.what();
  }
}

using RestrictTrap = EmulatorTest;

const std::string kReadBack = "out[threadIdx.x] = 1; __syncthreads(); out[threadIdx.x] += out[threadIdx.x ^ 1];";

TEST_F(RestrictTrap, IsRefusedByEachOfItsNames) {
  for (const std::string word : {"__restrict__", "__restrict", "restrict"}) {
    EXPECT_THAT(why_refused(kernel("float* " + word + " out = call.out; " + kReadBack)), testing::HasSubstr("poisoned \"" + word + '"'));
  }
}

TEST_F(RestrictTrap, IsRefusedWhereverItStands) {
  const auto refused = testing::HasSubstr("poisoned \"__restrict__\"");
  EXPECT_THAT(why_refused(kernel("helper(call.out);", "__device__ void helper(float* __restrict__ out) { " + kReadBack + " }\n")), refused);
  EXPECT_THAT(why_refused(kernel("call.out[0] = 1;", "struct Other { float* __restrict__ out; };\n")), refused);
  EXPECT_THAT(why_refused(kernel("float* FAST out = call.out; " + kReadBack, "#define FAST __restrict__\n")), refused);
}

TEST_F(RestrictTrap, IsNoneWithoutTheWord) {
  EXPECT_EQ(why_refused(kernel("float* out = call.out; " + kReadBack)), "");
  EXPECT_EQ(why_refused(kernel("call.out[0] = 1;  // __restrict__\n/* restrict */")), "");
}

TEST_F(RestrictTrap, LeavesLinesAsTheyAre) { EXPECT_THAT(why_refused(kernel("no_such_name();")), testing::HasSubstr("kernel.cu:3:")); }

TEST_F(RestrictTrap, IsInNoHeaderOfTheDeviceLibrary) {
  std::string includes;
  for (const codegen::DeviceHeader& header : codegen::device_library()) includes += "#include \"" + std::string(header.name) + "\"\n";
  EXPECT_THAT(includes, testing::HasSubstr("\"codegen/device/threads.h\""));
  EXPECT_EQ(why_refused(includes + kernel("call.out[0] = 1;")), "");
}

// These are not the backend's texts, and use it for memory that nobody writes.
TEST(RestrictedPointers, OfTheKernelsHereLeadToConstants) {
  for (const KernelFile& file : kKernelFiles) {
    const std::string others = std::regex_replace(text_of(file.name), std::regex(R"(const \w+\* __restrict__)"), "");
    EXPECT_EQ(others.find("restrict"), std::string::npos) << file.name;
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda
