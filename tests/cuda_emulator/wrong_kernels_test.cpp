// One deliberately broken kernel for each kind of error that the emulator finds.

#include <gmock/gmock.h>

#include "tests/cuda_emulator/emulator_test.h"

namespace hindcast::tests::cuda {
namespace {

struct Broken {
  std::string name;
  /// Fibres run in order, so the first of several errors is reported.
  std::vector<Wrong> kinds;
  std::string body;  // of a kernel with the parameters `const float* in, float* out, int n`
  LaunchShape shape = {{1}, {64}};
  bool between_blocks = false;
};

std::ostream& operator<<(std::ostream& out, const Broken& broken) { return out << broken.name; }

const std::string kI = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n";
const std::string kShared = kI + "__shared__ float s[64];\n";

/// Both arrays have 100 elements; `in` is written.
constexpr int kCount = 100;

Finding finding_of(const Broken& broken) {
  const std::string text = "extern \"C\" __global__ void broken(const float* in, float* out, int n) {\n" + broken.body + "\n}\n";
  DeviceArray<float> in(std::vector<float>(kCount, 1.0f), "in"), out(kCount, "out");
  try {
    launch_with(compile(text, {"broken"}).kernel("broken"), broken.shape, static_cast<const float*>(in.data()), out.data(), kCount);
  } catch (const KernelError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("in broken, block (")) << error.what();
    return error.finding();
  }
  ADD_FAILURE() << "nothing was found in " << text;
  return {};
}

class BrokenKernel : public testing::TestWithParam<Broken> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(BrokenKernel, IsFound) {
  const Finding finding = finding_of(GetParam());
  EXPECT_THAT(GetParam().kinds, testing::Contains(finding.kind)) << describe(finding);
  EXPECT_EQ(finding.between_blocks, GetParam().between_blocks) << describe(finding);
}

std::string name_of_case(const testing::TestParamInfo<Broken>& info) { return info.param.name; }

using enum Wrong;

INSTANTIATE_TEST_SUITE_P(
    Bounds, BrokenKernel,
    testing::Values(Broken{"Tail", {GlobalBounds}, kI + "if (i <= n) out[i] = in[0];", {{2}, {64}}},
                    // The host memory at this address may be the block's shared memory.
                    Broken{"Far", {GlobalBounds, SharedBounds}, kI + "out[i + 1000000] = 1.0f;"},
                    Broken{"Before", {GlobalBounds}, kI + "out[i] = in[i - 1];"},
                    Broken{"LastHalfOfAVector",
                           {GlobalBounds},
                           kI + "*reinterpret_cast<float4*>(out + 4 * i) = *reinterpret_cast<const float4*>(in + 4 * (i % 25) + 0 * n);",
                           {{1}, {26}}},
                    Broken{"StaticShared", {ArrayBounds, SharedBounds}, kShared + "s[i + 1] = in[i]; __syncthreads(); out[i] = s[i];"},
                    Broken{"TwoDimensions",
                           {ArrayBounds, SharedBounds},
                           kI + "__shared__ float t[2][32]; t[i / 32][i % 32 + 1] = in[i]; __syncthreads(); out[i] = t[0][i % 32];"},
                    Broken{"DynamicShared",
                           {SharedBounds},
                           kI + "extern __shared__ float smem[]; smem[i] = in[i]; __syncthreads(); out[i] = smem[63 - i];",
                           {{1}, {64}, 63 * sizeof(float)}},
                    Broken{"NoDynamicShared", {SharedBounds}, kI + "extern __shared__ float smem[]; smem[i] = in[i]; out[i] = smem[i];"},
                    Broken{"OwnArray", {ArrayBounds}, kI + "float a[4] = {in[0], in[1], in[2], in[3]}; out[i] = a[n % 5 + 4];"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Unwritten, BrokenKernel,
    testing::Values(Broken{"Global", {Uninitialised}, kI + "out[i] += in[i];"},
                    Broken{"Shared", {Uninitialised}, kShared + "if (i < 63) s[i] = in[i]; __syncthreads(); out[i] = s[i];"},
                    Broken{"SumInFreshShared", {Uninitialised}, kShared + "s[i] += in[i]; out[i] = s[i];"},
                    // What the previous block left there does not belong to this one.
                    Broken{"SharedOfTheBlockBefore",
                           {Uninitialised},
                           "__shared__ float s[64]; if (blockIdx.x == 0) s[threadIdx.x] = in[0]; __syncthreads(); out[threadIdx.x] = s[0];",
                           {{2}, {32}}}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Races, BrokenKernel,
    testing::Values(
        Broken{"NoBarrier", {Uninitialised, ReadAfterWrite, WriteAfterRead}, kShared + "s[i] = in[i]; out[i] = s[63 - i];"},
        Broken{"SharedReadAfterWrite",
               {ReadAfterWrite},
               kShared + "s[i] = in[i]; __syncthreads(); s[i] = 2.0f; out[i] = i > 0 ? s[i - 1] : 0.0f;"},
        Broken{"SharedWriteAfterRead",
               {WriteAfterRead},
               kShared + "s[i] = in[i]; __syncthreads(); const float x = s[(i + 1) % 64]; s[i] = x; __syncthreads(); out[i] = s[i];"},
        Broken{"SharedWriteAfterWrite", {WriteAfterWrite}, kShared + "s[i / 2] = in[i]; __syncthreads(); out[i] = s[i / 2];"},
        Broken{"OneWarpsBarrierForTwo",
               {ReadAfterWrite, WriteAfterRead, Uninitialised},
               kShared + "s[i] = in[i]; __syncthreads(); s[i] = 2.0f; __syncwarp(); out[i] = s[i ^ 32];"},
        Broken{"GlobalReadAfterWrite", {ReadAfterWrite}, kI + "out[i] = in[i]; if (i > 0) out[i] += out[i - 1];"},
        Broken{"GlobalWriteAfterWrite", {WriteAfterWrite}, kI + "out[i / 2] = in[i];"},
        Broken{"GlobalWriteAfterRead",
               {WriteAfterRead},
               kI + "float* w = const_cast<float*>(in); if (i == 0) out[0] = w[1]; else w[i] = 2.0f;"},
        Broken{"StoreBesideAtomic",
               {WriteAfterWrite},
               "if (threadIdx.x == 0) out[0] = 0.0f; __syncthreads(); if (threadIdx.x < 8) atomicAdd(out, 1.0f); else out[0] = 2.0f;"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    RacesBetweenBlocks, BrokenKernel,
    testing::Values(Broken{"BothWrite", {WriteAfterWrite}, "out[threadIdx.x] = in[blockIdx.x];", {{2}, {64}}, true},
                    Broken{"OneReadsWhatTheOtherWrote",
                           {ReadAfterWrite},
                           "if (blockIdx.x == 0) out[threadIdx.x] = 1.0f; else out[threadIdx.x + 50] = out[threadIdx.x];",
                           {{2}, {32}},
                           true},
                    Broken{"OneWritesWhatTheOtherRead",
                           {WriteAfterRead},
                           "float* w = const_cast<float*>(in); if (blockIdx.x == 1) w[0] = 2.0f; else out[threadIdx.x] = w[0];",
                           {{2}, {32}},
                           true},
                    // The pattern of a last block that sums what others left is reported as this error: use two launches.
                    Broken{"FenceAndCounter",
                           {ReadAfterWrite},
                           "if (threadIdx.x == 0) { out[blockIdx.x] = 1.0f; __threadfence(); out[2 + blockIdx.x] = "
                           "blockIdx.x == 1 ? out[0] : 0.0f; }",
                           {{2}, {32}},
                           true}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Barriers, BrokenKernel,
    testing::Values(Broken{"InOneBranch", {Barrier}, kI + "out[i] = in[i]; if (i < 32) __syncthreads(); out[i] = 2.0f;"},
                    Broken{"OnTwoLines", {Barrier}, kI + "if (i < 32)\n  __syncthreads();\nelse\n  __syncthreads();\nout[i] = in[i];"},
                    Broken{"SomeReturnedEarly", {Barrier}, kI + "if (i == 63) return;\n__syncthreads(); out[i] = in[i];"},
                    Broken{"LoopsOfTwoLengths", {Barrier}, kI + "for (int k = 0; k <= i / 32; ++k) __syncthreads(); out[i] = in[i];"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Lanes, BrokenKernel,
    testing::Values(
        Broken{"InABranch", {Warp}, kI + "float x = in[i]; if (i % 32 < 20) x = __shfl_xor_sync(0xffffffffu, x, 1); out[i] = x;"},
        Broken{"OfAPartialWarp", {Warp}, kI + "out[i] = __shfl_down_sync(0xffffffffu, in[i], 1);", {{1}, {48}}},
        Broken{"SourceOutsideOfTheMask",
               {Warp},
               kI + "float x = in[i]; if (i % 32 < 16) x = __shfl_xor_sync(0x0000ffffu, x, 16); out[i] = x;"},
        Broken{"NotInTheOwnMask", {Warp}, kI + "out[i] = __shfl_sync(0x0000ffffu, in[i], 0);"},
        Broken{"WarpBarrierInABranch", {Warp}, kI + "out[i] = in[i]; if (i % 2 == 0) __syncwarp();"},
        Broken{"VoteInABranch", {Warp}, kI + "out[i] = i % 32 == 5 ? 0.0f : float(__any_sync(0xffffffffu, in[i] > 0.0f));"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Alignment, BrokenKernel,
    testing::Values(Broken{"Load", {Misaligned}, kI + "if (i == 0) out[0] = reinterpret_cast<const float4*>(in + 1)->x;"},
                    Broken{"Store", {Misaligned}, kI + "if (i == 0) *reinterpret_cast<float2*>(out + 1) = make_float2(in[0], in[1]);"},
                    Broken{"CopyOfAStruct",
                           {Misaligned},
                           "struct alignas(16) Pack { unsigned short bits[8]; }; if (threadIdx.x == 0) "
                           "*reinterpret_cast<Pack*>(out) = *reinterpret_cast<const Pack*>(in + 2);"}),
    name_of_case);

class Findings : public EmulatorTest {};

TEST_F(Findings, SayWhereAndWhat) {
  const Finding finding = finding_of({"", {}, kI + "if (i < n + 1) out[i] = 1.0f;", {{4}, {32}}});
  EXPECT_EQ(finding.kind, GlobalBounds);
  EXPECT_EQ(finding.kernel, "broken");
  EXPECT_EQ(finding.block, (Dim3{3, 0, 0}));
  EXPECT_EQ(finding.thread, (Dim3{4, 0, 0}));
  EXPECT_THAT(finding.what, testing::HasSubstr("writes 4 bytes"));
  EXPECT_THAT(finding.what, testing::HasSubstr("0 bytes behind the end of 'out', which has 400"));
}

TEST_F(Findings, NameTheOtherThreadOfARace) {
  const Finding finding = finding_of({"", {}, kShared + "s[i / 2] = in[i];"});
  EXPECT_EQ(finding.thread, (Dim3{1, 0, 0}));
  EXPECT_EQ(finding.element, 0);
  EXPECT_THAT(finding.what, testing::HasSubstr("nothing orders this after thread 0"));
}

TEST_F(Findings, LeaveTheEmulatorReadyForTheNextLaunch) {
  finding_of({"", {}, kShared + "s[i] = in[i]; if (i < 32) __syncthreads();"});
  DeviceArray<int> in(std::vector<int>(64, 3)), out(std::vector<int>{0});
  launch_with(kernel_of("reductions", "sum_by_atomics"), {{1}, {64}}, in.data(), out.data(), 64);
  EXPECT_EQ(out.values()[0], 192);
}

TEST_F(Findings, AreMadeOfBadLaunchesToo) {
  const Kernel& kernel = kernel_of("exchange", "of_lanes");
  for (const LaunchShape& shape : {LaunchShape{{0}, {32}}, {{1}, {1025}}, {{1}, {32}, 228 * 1024}, {{1, 65536}, {32}}}) {
    EXPECT_THROW(launch(kernel, shape, nullptr), KernelError);
  }
}

TEST_F(Findings, AreNoneWhereTheTextDoesNotCompile) {
  try {
    compile("extern \"C\" __global__ void k() { no_such_name(); }", {"k"});
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("kernel.cu:1"));
    EXPECT_THAT(error.what(), testing::HasSubstr("no_such_name"));
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda
