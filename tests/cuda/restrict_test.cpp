// The emulator compiles no text of the backend's that restricts a pointer, nor loads one from disk.

#include <gtest/gtest.h>

#include <string>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"

namespace hindcast::tests::cuda {
namespace {

std::string text(const std::string& word) {
  return "struct Call { float* out; };\nextern \"C\" __global__ void __launch_bounds__(64) k(const Call call) {\n  float* " + word +
         " out = call.out;\n  out[threadIdx.x] = 1;\n  __syncthreads();\n  out[threadIdx.x] += out[threadIdx.x ^ 1];\n}\n";
}

TEST(Restrict, IsRefusedByTheEmulator) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_NO_THROW(emulator_machine().load(emulator_machine().compile(text(""))));
  EXPECT_THROW(emulator_machine().compile(text("__restrict__")), CompileError);
  EXPECT_THROW(emulator_machine().load(text("__restrict__")), CompileError);
}

}  // namespace
}  // namespace hindcast::tests::cuda
