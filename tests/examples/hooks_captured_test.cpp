// Hooks on parameters appear in the captured graph: as call_hook, or, if marked traceable, as their operators.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <sstream>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class HooksCaptured : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  /// Two backwards, a miss and a hit; returns the graph.
  std::string capture() {
    std::ostringstream printed;
    const auto guard = hindcast::enable(hindcast::compilers::print(printed));
    for (int step = 0; step < 2; ++step) backward();
    EXPECT_EQ(hindcast::stats().unique_graphs, 1U) << printed.str();
    EXPECT_EQ(hindcast::stats().hits, 1U);
    return printed.str();
  }

  void backward() {
    x_.mutable_grad() = at::Tensor();
    x_.sum().backward();
  }

  at::Tensor x_ = at::randn({10, 10}).set_requires_grad(true);
};

TEST_F(HooksCaptured, ATensorHookIsACallHook) {
  int calls = 0;
  x_.register_hook([&](at::Tensor grad) {
    ++calls;
    return grad + 10;
  });
  EXPECT_THAT(capture(), ContainsRegex("call_hook: \"f32\\[10, 10\\]\\[10, 1\\]cpu\" = "
                                       "call_hook\\(hooks\\[[0-9]+\\], expand, hook_type = 'tensor_pre_hook'\\)"));
  EXPECT_EQ(calls, 2);
  EXPECT_GE(hindcast::stats().hook_calls, 1U);
  EXPECT_TRUE(x_.grad().equal(at::full({10, 10}, 11.)));
}

TEST_F(HooksCaptured, ItStandsBetweenTheGradientAndTheLeaf) {
  x_.register_hook([](at::Tensor grad) { return grad * 2; });
  const std::string graph = capture();
  EXPECT_LT(graph.find("expand: "), graph.find("call_hook: ")) << graph;
  EXPECT_LT(graph.find("call_hook: "), graph.find("accumulate_grad_(call_hook)")) << graph;
}

TEST_F(HooksCaptured, ATraceableHookIsItsOperators) {
  x_.register_hook(hindcast::traceable([](at::Tensor grad) { return grad.clamp(-0.5, 0.5); }));
  const std::string graph = capture();
  EXPECT_THAT(graph, HasSubstr("torch.ops.aten.clamp.default(expand, -0.5, 0.5)"));
  EXPECT_THAT(graph, Not(HasSubstr("call_hook")));
  EXPECT_EQ(hindcast::stats().hook_calls, 0U);
  EXPECT_TRUE(x_.grad().equal(at::full({10, 10}, 0.5)));
}

TEST_F(HooksCaptured, AnotherTraceableHookIsAnotherGraph) {
  const auto guard = hindcast::enable();
  const unsigned first = x_.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * 2; }));
  backward();
  x_.remove_hook(first);
  x_.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * 3; }));
  backward();
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U);
  EXPECT_TRUE(x_.grad().equal(at::full({10, 10}, 3.)));
}

TEST_F(HooksCaptured, OnGradReadySeesTheNewGradOnEveryBackward) {
  std::vector<double> seen;
  auto handle = hindcast::on_grad_ready(x_, [&](const at::Tensor& x) { seen.push_back(x.grad().sum().item<double>()); });
  capture();
  EXPECT_EQ(seen, (std::vector<double>{100, 100}));
  handle.remove();
  x_.sum().backward();
  EXPECT_EQ(seen.size(), 2U);
}

TEST_F(HooksCaptured, AHookThatCameLaterIsAnotherGraph) {
  const auto guard = hindcast::enable();
  backward();
  x_.register_hook([](at::Tensor grad) { return grad * 4; });
  backward();
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U);
  EXPECT_TRUE(x_.grad().equal(at::full({10, 10}, 4.)));
}

}  // namespace
}  // namespace hindcast::tests
