// The 10x10 linear model of the tutorial: the log of its first backward, and that the others hit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class Linear10x10 : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }
  void backward() { model_(x_).sum().backward(); }

  torch::nn::Linear model_{10, 10};
  at::Tensor x_ = at::randn({10});
};

TEST_F(Linear10x10, LogsTheReasonOfTheCaptureInTheTutorialsWords) {
  LogCapture logs("compiled_autograd_verbose");
  const auto guard = hindcast::enable();
  backward();
  EXPECT_THAT(logs.text(), ContainsRegex("Cache miss due to new autograd node: torch::autograd::GraphRoot "
                                         "\\(NodeCall 0\\) with key size [0-9]+, previous key sizes=\\[\\]"));
}

TEST_F(Linear10x10, LogsTheGraphWithItsNodesAndNodeCalls) {
  LogCapture logs("compiled_autograd");
  const auto guard = hindcast::enable();
  backward();
  const std::string text = logs.text();
  EXPECT_THAT(text, HasSubstr("===== Compiled autograd graph ====="));
  EXPECT_THAT(text, HasSubstr("def forward(self, inputs, sizes, scalars, hooks):"));
  EXPECT_THAT(text, HasSubstr("# SumBackward0 (NodeCall 1)"));
  EXPECT_THAT(text, HasSubstr("tangents_1: \"f32[][]cpu\" = inputs[0]"));
  EXPECT_THAT(text, HasSubstr("expand: \"f32[10][0]cpu\" = torch.ops.aten.expand.default(tangents_1, [10], False)"));
  EXPECT_THAT(text, ContainsRegex("mm: \"f32\\[10, 10\\]\\[[0-9]+, [0-9]+\\]cpu\" = torch.ops.aten.mm.default"));
  EXPECT_EQ(logs.count("# torch::autograd::AccumulateGrad (NodeCall "), 2U) << text;
  EXPECT_EQ(logs.count("accumulate_grad_ = accumulate_grad_("), 2U) << text;
  EXPECT_THAT(text, HasSubstr("return []"));
}

TEST_F(Linear10x10, TheGraphAloneIsLoggedWithoutTheVerboseChannel) {
  LogCapture logs("compiled_autograd");
  const auto guard = hindcast::enable();
  backward();
  EXPECT_EQ(logs.count("Cache miss"), 0U) << logs.text();
  EXPECT_EQ(logs.count("===== Compiled autograd graph ====="), 1U);
}

TEST_F(Linear10x10, AHitLogsNothing) {
  const auto guard = hindcast::enable();
  backward();
  LogCapture logs("compiled_autograd,compiled_autograd_verbose,recompiles");
  for (int step = 0; step < 3; ++step) {
    model_->zero_grad(/*set_to_none=*/step % 2 == 0);
    backward();
  }
  EXPECT_EQ(logs.text(), "");
  const Stats stats = hindcast::stats();
  EXPECT_EQ(stats.unique_graphs, 1U);
  EXPECT_EQ(stats.misses, 1U);
  EXPECT_EQ(stats.hits, 3U);
}

TEST_F(Linear10x10, GradientsAreThoseOfTheStockEngine) {
  backward();
  const at::Tensor weight = model_->weight.grad().clone(), bias = model_->bias.grad().clone();
  const auto guard = hindcast::enable();
  for (int step = 0; step < 3; ++step) {
    model_->zero_grad();
    backward();
    EXPECT_TRUE(model_->weight.grad().equal(weight));
    EXPECT_TRUE(model_->bias.grad().equal(bias));
  }
}

}  // namespace
}  // namespace hindcast::tests
