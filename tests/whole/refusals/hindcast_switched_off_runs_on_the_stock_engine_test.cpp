#include <gtest/gtest.h>
#include <hindcast/optim.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdlib>
#include <iostream>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

TEST(HindcastSwitchedOffRunsOnTheStockEngine, ByTheGuardsOptions) {
  Options off;
  off.enabled = false;
  expect_refused(
      {FallbackReason::Disabled, /*taken_over=*/0, /*warns=*/false},
      [] {
        const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
        EXPECT_FALSE(hindcast::active());
        x.sin().sum().backward();
        return std::vector{x.grad()};
      },
      off);
}

// The variable is read once per process, so each of these is a separate process.
[[noreturn]] void report_and_exit() {
  {
    const auto guard = hindcast::enable();
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    x.sin().sum().backward();
    const bool right = x.grad().equal(x.detach().cos());
    const Stats stats = hindcast::stats();
    const auto disabled = stats.fallbacks_by_reason.find("Disabled");
    std::cerr << (right ? "right" : "wrong") << ", active " << hindcast::active() << ", taken over " << stats.backwards << ", disabled "
              << (disabled == stats.fallbacks_by_reason.end() ? 0 : disabled->second) << '\n';
  }
  std::_Exit(0);
}

class DisabledByTheEnvironment : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  void TearDown() override { unsetenv("HINDCAST_DISABLE"); }
};

TEST_F(DisabledByTheEnvironment, Set) {
  setenv("HINDCAST_DISABLE", "1", 1);
  EXPECT_EXIT(report_and_exit(), testing::ExitedWithCode(0), "right, active 0, taken over 0, disabled 1");
}

TEST_F(DisabledByTheEnvironment, ZeroMeansNo) {
  setenv("HINDCAST_DISABLE", "0", 1);
  EXPECT_EXIT(report_and_exit(), testing::ExitedWithCode(0), "right, active 1, taken over 1, disabled 0");
}

TEST_F(DisabledByTheEnvironment, EmptyMeansNo) {
  setenv("HINDCAST_DISABLE", "", 1);
  EXPECT_EXIT(report_and_exit(), testing::ExitedWithCode(0), "right, active 1, taken over 1, disabled 0");
}

[[noreturn]] void step_and_exit() {
  const auto x = at::ones({4}).set_requires_grad(true);
  x.mutable_grad() = at::ones({4});
  torch::optim::SGD optimizer({x}, 0.5);
  auto step = compiled_step(optimizer, ClipGradNorm{1.0});
  step();
  const bool right = x.allclose(at::full({4}, 0.75), 1e-4);
  std::cerr << (right ? "right" : "wrong") << ", compiled " << step.counts().compiled << ", original " << step.counts().original << ", "
            << step.counts().why_original << '\n';
  std::_Exit(0);
}

TEST_F(DisabledByTheEnvironment, TheOptimizersStepIsItsOwn) {
  setenv("HINDCAST_DISABLE", "1", 1);
  EXPECT_EXIT(step_and_exit(), testing::ExitedWithCode(0), "right, compiled 0, original 1, HINDCAST_DISABLE is set");
}

}  // namespace
}  // namespace hindcast::tests
