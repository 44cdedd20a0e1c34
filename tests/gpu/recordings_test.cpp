// Backwards on a card that are replayed as CUDA graphs. tests/engine/cuda_graphs runs the same programs on a fake card.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <thread>

#include "tests/gpu/on_gpu.h"
#include "tests/gpu/programs/recorded_programs.h"

namespace hindcast::tests {
namespace {

class GpuRecordings : public OnGpu, public testing::WithParamInterface<RecordedProgram> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    at::globalContext().setAllowTF32CuBLAS(false);
    const std::string why_not = card().why_not_recorded({c10::kCUDA, 0});
    ASSERT_EQ(why_not, "");
  }
};

TEST_P(GpuRecordings, AreAsWithoutGraphs) {
  const Stats counts = expect_as_without_graphs(GetParam(), {c10::kCUDA, 0});
  synchronize();
  EXPECT_GE(counts.cuda_graphs, GetParam().parts) << counts;
  EXPECT_EQ(counts.without_cuda_graph.empty(), GetParam().why_not.empty()) << counts;
  reset();
  EXPECT_EQ(stats().cuda_graph_bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, GpuRecordings, testing::ValuesIn(recorded_programs()),
                         [](const testing::TestParamInfo<RecordedProgram>& info) { return info.param.name; });

int64_t reserved_bytes() {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(0).reserved_bytes[kAll].current;
}

using GpuGraphMemory = OnGpu;

// Named like recordings, for the sanitizer's runs: those with LibTorch's allocator.
TEST_F(GpuGraphMemory, RecordingsThatGoDuringACaptureGiveItBackLater) {
  const c10::Device device(c10::kCUDA, 0);
  ASSERT_EQ(card().why_not_recorded(device), "");
  constexpr int64_t kBytes = int64_t{64} << 20;
  const auto give = [&] { at::full({kBytes}, 1, at::device(device).dtype(at::kByte)); };
  give();
  synchronize();
  const int64_t before = reserved_bytes();
  auto first = card().record(device, give);
  first->launch();
  EXPECT_GE(reserved_bytes(), before + kBytes);
  const auto second = card().record(device, [&] {
    std::thread([&] { first.reset(); }).join();
    give();
  });
  synchronize();
  EXPECT_GE(reserved_bytes(), before + 2 * kBytes);
  trim();
  EXPECT_LT(reserved_bytes(), before + 2 * kBytes);
}

}  // namespace
}  // namespace hindcast::tests
