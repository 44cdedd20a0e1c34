// Without a compiler, everything runs through ATen.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

void run_without_compiler() {
  setenv("HINDCAST_CLANG_LIBRARY", "/nonexistent/libhindcast_clang.so", 1);
  LogCapture logs("");
  const auto guard = hindcast::enable(fused_options());
  for (int graph = 0; graph < 2; ++graph) {
    for (int step = 0; step < 2; ++step) {
      const auto x = at::ones({4}).set_requires_grad(true);
      auto y = x.mul(2).tanh();
      if (graph == 1) y = y.sigmoid();
      y.sum().backward();
      if (!x.grad().defined()) std::exit(1);
    }
  }
  const Stats stats = hindcast::stats();
  if (stats.hits != 2 || stats.fused_graphs != 0 || stats.compiler_failures != 2) std::exit(2);
  if (logs.count("/nonexistent/libhindcast_clang.so") != 1) std::exit(3);
  std::exit(0);
}

TEST(MissingCompiler, IsOneWarningAndATenRuns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process: this one may already have its compiler
  EXPECT_EXIT(run_without_compiler(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hindcast::tests
