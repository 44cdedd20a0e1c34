// Sizes 10, 100, 10: captured, captured with dynamic sizes, hit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

using testing::HasSubstr;

class VaryingSizes : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  static void backward(int64_t n) {
    const auto x = at::randn({n, n}).set_requires_grad(true);
    x.sum().backward();
    EXPECT_TRUE(x.grad().equal(at::ones({n, n})));
  }
};

TEST_F(VaryingSizes, TheFirstChangeMarksEachSizeThatChangedAsDynamic) {
  LogCapture logs("recompiles");
  const auto guard = hindcast::enable();
  backward(10);
  logs.clear();
  backward(100);
  const std::string text = logs.text();
  for (const char* node : {"0 of SumBackward0 (NodeCall 1)", "1 of SumBackward0 (NodeCall 1)",
                           "2 of torch::autograd::AccumulateGrad (NodeCall 2)", "3 of torch::autograd::AccumulateGrad (NodeCall 2)"}) {
    EXPECT_THAT(text, HasSubstr(std::string("Cache miss due to changed shapes: marking size idx ") + node + " as dynamic\n"));
  }
  EXPECT_EQ(logs.count("Cache miss due to"), 4U) << text;
}

TEST_F(VaryingSizes, TwoCapturesAreEnough) {
  const auto guard = hindcast::enable();
  for (const int64_t n : {10, 100, 10, 37, 500, 2}) backward(n);
  const Stats stats = hindcast::stats();
  EXPECT_EQ(stats.unique_graphs, 2U);
  EXPECT_EQ(stats.misses, 2U);
  EXPECT_EQ(stats.hits, 4U);
  EXPECT_EQ(stats.misses_by_reason, (std::map<std::string, uint64_t>{{"NewNode", 1}, {"ChangedShapes", 1}}));
}

TEST_F(VaryingSizes, TheStaticCaptureStaysBesideTheDynamicOne) {
  const auto guard = hindcast::enable();
  backward(10);
  backward(100);
  LogCapture logs("recompiles");
  backward(10);
  EXPECT_EQ(logs.text(), "");
}

TEST_F(VaryingSizes, TheSecondGraphIsPrintedWithSymbols) {
  std::ostringstream printed;
  const auto guard = hindcast::enable(hindcast::compilers::print(printed));
  backward(10);
  EXPECT_THAT(printed.str(), HasSubstr("torch.ops.aten.expand.default(tangents_1, [10, 10], False)"));
  printed.str("");
  backward(100);
  EXPECT_THAT(printed.str(), HasSubstr("s0 = sizes[0]"));
  EXPECT_THAT(printed.str(), HasSubstr("torch.ops.aten.expand.default(tangents_1, [s0, s0], False)"));
}

TEST_F(VaryingSizes, WithoutDynamicSizesEachIsCapturedUpToTheLimit) {
  LogCapture logs("recompiles");
  Options options;
  options.dynamic = Dynamic::Never;
  options.limit = 2;
  const auto guard = hindcast::enable(options);
  for (const int64_t n : {10, 100, 20, 100, 10}) backward(n);
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U);
  EXPECT_EQ(hindcast::stats().hits, 2U);
  EXPECT_EQ(hindcast::stats().misses_by_reason.count("LimitReached"), 1U);
  EXPECT_THAT(logs.text(), HasSubstr("size idx 0 of SumBackward0 (NodeCall 1) 10 -> 100, kept static\n"));
}

}  // namespace
}  // namespace hindcast::tests
