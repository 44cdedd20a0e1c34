// Backwards on a card that are replayed as CUDA graphs. tests/recordings has the same programs on a card that is none.

#include <ATen/Context.h>

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

}  // namespace
}  // namespace hindcast::tests
