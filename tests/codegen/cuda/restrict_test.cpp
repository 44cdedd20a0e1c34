// The emulator refuses the backend's texts that restrict a pointer, whether new or from disk.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"

namespace hindcast::tests::cuda {
namespace {

constexpr uint32_t kThreads = 64;

std::string text(const std::string& word) {
  return "struct Call { float* out; };\nextern \"C\" __global__ void __launch_bounds__(64) k(const Call call) {\n  float* " + word +
         " out = call.out;\n  out[threadIdx.x] = 1;\n  __syncthreads();\n  const float other = out[threadIdx.x ^ 1];\n  __syncthreads();\n"
         "  out[threadIdx.x] += other;\n}\n";
}

/// Launches the kernel of `object`. Returns what its threads wrote.
std::vector<float> launch(const std::string& object) {
  const codegen::cuda::Machine& machine = emulator_machine();
  const auto module = machine.load(object);
  std::vector<float> out(kThreads);
  float* const argument = out.data();
  const codegen::cuda::Memory memory{.begin = argument, .bytes = static_cast<int64_t>(out.size() * sizeof(float))};
  machine.launch({.function = module->function("k"),
                  .module = module.get(),
                  .grid = {1},
                  .block = {kThreads},
                  .argument = &argument,
                  .argument_bytes = sizeof(argument),
                  .memory = memory});
  return out;
}

TEST(Restrict, IsRefusedByTheEmulator) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(launch(emulator_machine().compile(text(""))), std::vector<float>(kThreads, 2));
  EXPECT_THROW(launch(emulator_machine().compile(text("__restrict__"))), CompileError);
  EXPECT_THROW(launch(text("__restrict__")), CompileError);
}

}  // namespace
}  // namespace hindcast::tests::cuda
