// Options::nan_guard with fused kernels: a kernel is replayed op by op, so that the message names one of its ops.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

Options guarded() {
  Options options = fused_options();
  options.nan_guard = true;
  return options;
}

TEST(FusedNanGuard, NamesAnOpInsideOfAKernel) {
  hindcast::reset();
  LogCapture logs("");
  const auto program = [](int64_t size) {
    const auto x = at::linspace(0, 1, size).set_requires_grad(true);
    x.sqrt().tanh().mul(2).sigmoid().sum().backward();
    return x.grad();
  };
  for (const int64_t size : {4, 4, 6, 9, 5}) {
    const at::Tensor stock = program(size);
    const auto guard = hindcast::enable(guarded());
    EXPECT_TRUE(at::allclose(program(size), stock, 1e-5, 1e-6, true)) << size;
  }
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 5U);
  EXPECT_GE(hindcast::stats().fused_graphs, 2U);
  EXPECT_GE(hindcast::stats().hits, 3U);
  EXPECT_EQ(logs.count("they begin in aten::div.Tensor of SqrtBackward0 (NodeCall 5), which was given finite values"), 5U) << logs.text();
  EXPECT_EQ(logs.count("1 infinite, 0 NaN, the first at [0]: inf"), 10U) << logs.text();
}

TEST(FusedNanGuard, SaysNothingOfFiniteGradients) {
  hindcast::reset();
  LogCapture logs("");
  const auto guard = hindcast::enable(guarded());
  for (int step = 0; step < 3; ++step) {
    const auto x = at::linspace(1, 2, 8).set_requires_grad(true);
    x.sqrt().tanh().mul(2).sum().backward();
  }
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 0U);
  EXPECT_EQ(logs.text(), "");
}

}  // namespace
}  // namespace hindcast::tests
