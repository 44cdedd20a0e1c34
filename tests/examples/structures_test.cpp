// add, sub, mul, div of the same leaf: four structures, and the first node that makes each of them new.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

using testing::ContainsRegex;

using Operator = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
const Operator kAdd = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
const Operator kSub = [](const at::Tensor& a, const at::Tensor& b) { return a - b; };
const Operator kMul = [](const at::Tensor& a, const at::Tensor& b) { return a * b; };
const Operator kDiv = [](const at::Tensor& a, const at::Tensor& b) { return a / b; };

class Structures : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  void backward(Operator apply) { apply(x_, x_).sum().backward(); }
  std::string logged(Operator apply) {
    LogCapture logs("recompiles");
    backward(apply);
    EXPECT_EQ(logs.count("Cache miss due to"), 1U) << logs.text();
    return logs.text();
  }

  at::Tensor x_ = at::randn({10}).set_requires_grad(true);
};

TEST_F(Structures, AMissNamesTheFirstNodeThatIsNew) {
  const auto guard = hindcast::enable();
  const std::string size = " with key size [0-9]+, previous key sizes=\\[\\]\n";
  EXPECT_THAT(logged(kAdd), ContainsRegex("Cache miss due to new autograd node: torch::autograd::GraphRoot "
                                          "\\(NodeCall 0\\)" +
                                          size));
  EXPECT_THAT(logged(kSub), ContainsRegex("Cache miss due to new autograd node: SubBackward0 \\(NodeCall 2\\)" + size));
  EXPECT_THAT(logged(kMul), ContainsRegex("Cache miss due to new autograd node: MulBackward0 \\(NodeCall 2\\)" + size));
  EXPECT_THAT(logged(kDiv), ContainsRegex("Cache miss due to new autograd node: DivBackward0 \\(NodeCall 2\\)" + size));
}

TEST_F(Structures, EachIsCapturedOnce) {
  const auto guard = hindcast::enable();
  for (int round = 0; round < 3; ++round) {
    for (const Operator apply : {kAdd, kSub, kMul, kDiv}) backward(apply);
  }
  const Stats stats = hindcast::stats();
  EXPECT_EQ(stats.unique_graphs, 4U);
  EXPECT_EQ(stats.misses, 4U);
  EXPECT_EQ(stats.hits, 8U);
  EXPECT_EQ(stats.misses_by_reason, (std::map<std::string, uint64_t>{{"NewNode", 4}}));
}

TEST_F(Structures, TheSameNodeWithAnotherKeyNamesTheKeysItHadThere) {
  const auto guard = hindcast::enable();
  const auto constant = at::randn({10});
  const auto multiply = [&](const at::Tensor& a, const at::Tensor& b) {
    LogCapture logs("recompiles");
    (a * b).sum().backward();
    return logs.text();
  };
  multiply(x_, x_);
  // One factor needs no gradient: MulBackward0 again, with one edge less.
  EXPECT_THAT(multiply(x_, constant), ContainsRegex("new autograd node: MulBackward0 \\(NodeCall 2\\) with key size "
                                                    "[0-9]+, previous key sizes=\\[[0-9]+\\]\n"));
}

}  // namespace
}  // namespace hindcast::tests
