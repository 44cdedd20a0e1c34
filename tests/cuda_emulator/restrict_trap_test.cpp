#include "tests/cuda_emulator/restrict_trap.h"

#include <gtest/gtest.h>

#include "tests/cuda_emulator/kernel_files.h"

namespace hindcast::tests::cuda {
namespace {

bool trapped(const std::string& body, const std::string& parameters = "const float* __restrict__ a, float* __restrict__ out, int n") {
  return !find_restrict_trap("extern \"C\" __global__ void __launch_bounds__(256) k(" + parameters + ") {" + body + "}").empty();
}

TEST(RestrictTrap, IsAWrittenPointerThatIsReadBack) {
  EXPECT_TRUE(trapped("out[i] = a[i]; __syncthreads(); out[i + 64] = out[i ^ 1];"));
  EXPECT_TRUE(trapped("out[i] += a[i];"));
  EXPECT_TRUE(trapped("out[i]++;"));
  EXPECT_TRUE(trapped("*reinterpret_cast<float4*>(out + i) = x; __syncthreads(); y = *reinterpret_cast<const float4*>(out + 4);"));
  EXPECT_TRUE(trapped("out[i] = 1; if (out[0] == 2) n = 3;"));
}

TEST(RestrictTrap, IsNoneWhereItIsOnlyWrittenOrOnlyRead) {
  EXPECT_FALSE(trapped("out[i] = a[i]; /* out[i] + out[j] */ // out[3] + 1\n"));
  EXPECT_FALSE(trapped("for (int i = 0; i < n; ++i) out[n * (i + 1)] = a[i] * 2;"));
  EXPECT_FALSE(trapped("*reinterpret_cast<float4*>(out + 4 * i) = x;"));
  EXPECT_FALSE(trapped("reinterpret_cast<float4*>(out)[i] = x; reinterpret_cast<float4*>(out)[i].x = 1;"));
  EXPECT_FALSE(trapped("store16(out + i, x); atomicAdd(&out[i], 1.0f);"));
  EXPECT_FALSE(trapped("float x = out[i]; output[0] = x;"));
}

TEST(RestrictTrap, IsFeltWhereThePointerGoesElsewhere) {
  EXPECT_TRUE(trapped("float* p = out; p[0] = p[1];"));
  EXPECT_TRUE(trapped("helper(out, i);"));
}

TEST(RestrictTrap, IsNoneWithoutTheWord) { EXPECT_FALSE(trapped("out[i] = out[i] + 1;", "const float* a, float* out, int n")); }

TEST(RestrictTrap, NamesKernelAndParameter) {
  const std::string text =
      "__device__ void f(float* __restrict__ x) { x[0] = x[1]; }\n"
      "extern \"C\" __global__ void first(float* __restrict__ x) { x[0] = 1; }\n"
      "extern \"C\" __global__ void second(float* __restrict__ x, int* __restrict__ y) { y[0] = 1; y[1] = y[0]; x[0] = 2; }\n";
  EXPECT_EQ(find_restrict_trap(text), (std::vector<RestrictTrap>{{"second", "y"}}));
}

TEST(RestrictTrap, IsInNoneOfTheKernelsHere) {
  for (const KernelFile& file : kKernelFiles) EXPECT_TRUE(find_restrict_trap(text_of(file.name)).empty()) << file.name;
}

}  // namespace
}  // namespace hindcast::tests::cuda
