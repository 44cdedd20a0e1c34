// Guards that do not end in reverse order of creation: in containers, as globals, moved.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

std::unique_ptr<Guard> make_guard(bool enabled = true) {
  Options options;
  options.enabled = enabled;
  return std::make_unique<Guard>(hindcast::enable(options));
}

void expect_taken_over(bool taken_over) {
  EXPECT_EQ(hindcast::active(), taken_over);
  hindcast::reset();
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  x.sin().sum().backward();
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  EXPECT_EQ(hindcast::stats().backwards, taken_over ? 1U : 0U);
}

// exit() destroys the main thread's thread_local objects before it runs such handlers.
[[noreturn]] void step_at_exit() {
  static const auto guard = make_guard();
  const auto step = [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    x.sin().sum().backward();
    return x.grad().equal(x.detach().cos());
  };
  for (int call = 0; call < 3; ++call) step();
  std::atexit([] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    x.sin().sum().backward();
    std::fputs(x.grad().equal(x.detach().cos()) ? "right" : "wrong", stderr);
  });
  std::exit(step() ? 0 : 1);
}

TEST(GuardOrderDeathTest, ABackwardAtExitIsStocks) { EXPECT_EXIT(step_at_exit(), testing::ExitedWithCode(0), "right"); }

TEST(GuardOrder, TheOuterOneMayGoFirst) {
  auto outer = make_guard(), inner = make_guard();
  outer.reset();
  expect_taken_over(true);
  inner.reset();
  expect_taken_over(false);
}

TEST(GuardOrder, TheInnermostThatIsLeftWins) {
  auto outer = make_guard(), middle = make_guard(/*enabled=*/false), inner = make_guard();
  middle.reset();
  expect_taken_over(true);
  inner.reset();
  expect_taken_over(true);
  outer.reset();
  expect_taken_over(false);
}

TEST(GuardOrder, OneInTheMiddleMayBeTheOneThatIsLeft) {
  auto outer = make_guard(), middle = make_guard(/*enabled=*/false), inner = make_guard();
  outer.reset();
  inner.reset();
  expect_taken_over(false);
  middle.reset();
  expect_taken_over(false);
}

TEST(GuardOrder, AHookMayEndTheGuardOfItsBackward) {
  hindcast::reset();
  int compiled = 0;
  Options options;
  options.compiler = Compiler([&compiled](const std::shared_ptr<const Graph>&) {
    ++compiled;
    return std::vector<SegmentFunction>();
  });
  auto guard = std::make_unique<Guard>(hindcast::enable(std::move(options)));
  options = {};
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  const auto y = x.sin();
  std::vector<std::vector<char>> others;
  y.register_hook([&](const at::Tensor&) {
    guard.reset();
    for (size_t bytes = 16; bytes <= 1024; bytes += 16) others.emplace_back(bytes, '\x55');  // where the options were
  });
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  EXPECT_EQ(compiled, 1) << "by the options that the backward began with";
  expect_taken_over(false);
}

TEST(GuardOrder, OfAVectorIsThatOfItsElements) {
  std::vector<Guard> guards;
  for (int i = 0; i < 3; ++i) guards.push_back(hindcast::enable());
  expect_taken_over(true);
  guards.clear();  // destroys the oldest first
  expect_taken_over(false);
}

}  // namespace
}  // namespace hindcast::tests
