// Correct kernels that come close to an error: the emulator reports none.

#include <ostream>

#include "tests/cuda_emulator/emulator_test.h"

namespace hindcast::tests::cuda {
namespace {

struct Right {
  std::string name, body;
  LaunchShape shape;
};

std::ostream& operator<<(std::ostream& out, const Right& right) { return out << right.name; }

class RightKernel : public testing::TestWithParam<Right> {};

TEST_P(RightKernel, HasNoFinding) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const std::string text = "extern \"C\" __global__ void right(const float* in, float* out, int n) {\n" + GetParam().body + "\n}\n";
  DeviceArray<float> in(std::vector<float>(4096, 1.0f)), out(4096);
  EXPECT_NO_THROW(
      launch_with(compile(text, {"right"}).kernel("right"), GetParam().shape, static_cast<const float*>(in.data()), out.data(), 4096));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, RightKernel,
    testing::Values(
        Right{"TablesOfConstants",
              "const float t[4] = {1, 2, 3, 4}; static const float u[3] = {1, 2, 3}; "
              "out[threadIdx.x] = t[(int)in[threadIdx.x] % 4] + u[n % 3];",
              {{1}, {64}}},
        Right{"VectorsInSharedMemory",
              "__shared__ __align__(16) float s[256]; "
              "*reinterpret_cast<float4*>(s + 4 * threadIdx.x) = *reinterpret_cast<const float4*>(in + 4 * threadIdx.x); "
              "__syncthreads(); out[threadIdx.x] = s[255 - threadIdx.x];",
              {{1}, {64}}},
        Right{"OneBarrierForTwoBuffers",
              "__shared__ float s[2][64]; float x = in[threadIdx.x]; for (int i = 0; i < 5; "
              "++i) { s[i % 2][threadIdx.x] = x; __syncthreads(); x += s[i % 2][63 - threadIdx.x]; } out[threadIdx.x] = x;",
              {{1}, {64}}},
        Right{"AtomicsInSharedMemory",
              "__shared__ float s; if (threadIdx.x == 0) s = 0; __syncthreads(); atomicAdd(&s, in[threadIdx.x]); "
              "__syncthreads(); if (threadIdx.x == 0) out[blockIdx.x] = s;",
              {{3}, {64}}},
        Right{"AtomicsOfIntegers",
              "__shared__ int m; if (threadIdx.x == 0) m = 0; __syncthreads(); atomicMax(&m, (int)threadIdx.x); "
              "__syncthreads(); out[threadIdx.x] = m + __popc(7);",
              {{1}, {40}}},
        Right{"ArraysOfAThread",
              "float a[16] = {}; for (int i = 0; i < 16; ++i) a[i] += in[i]; float t = 0; for (float x : a) t += x; "
              "out[threadIdx.x] = t;",
              {{1}, {33}}},
        Right{"BlocksAndThreadsInTwoDimensions",
              "out[(blockIdx.y * gridDim.x + blockIdx.x) * 64 + threadIdx.y * 8 + threadIdx.x] = fmaxf(in[threadIdx.x], expf(2.0f));",
              {{3, 2}, {8, 8}}},
        Right{"WarpsThatAreNotFull",
              "float x = in[threadIdx.x]; "
              "const unsigned mask = __ballot_sync(blockDim.x - threadIdx.x / 32 * 32 >= 32 ? 0xffffffffu : (1u << (blockDim.x % 32)) - 1, "
              "1); "
              "x += __shfl_down_sync(mask, x, 0); out[threadIdx.x] = x;",
              {{1}, {48}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests::cuda
