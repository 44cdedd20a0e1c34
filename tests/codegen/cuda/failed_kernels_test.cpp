// One kernel of a graph cannot be compiled: its group runs through ATen, the others run their kernels.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::cuda {
namespace {

/// Two groups, with a product between them; x's group has an atan.
std::vector<at::Tensor> gradients() {
  at::manual_seed(1);
  const at::Tensor x = at::randn({32, 48}).set_requires_grad(true), w = at::randn({48, 40}).set_requires_grad(true);
  (at::mm(x.atan() * x.atan(), w).tanh() * 1.5).sin().sum().backward();
  return {x.grad(), w.grad()};
}

TEST(FailedKernels, OfOneGroupAreATens) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const auto stock = gradients();
  for (const bool verify : {false, true}) {
    const LogCapture logs("compiled_autograd");
    hindcast::reset();
    const WithEdit refuse([](const std::string& text) {
      // x / (x * x + 1) contains a one.
      if (text.find("atan_backward") != std::string::npos || text.find("reciprocal") != std::string::npos ||
          text.find("div<") != std::string::npos)
        throw std::runtime_error("refused by the test");
      return text;
    });
    const Options options{.compiler = compilers::fused(), .async = false, .verify = verify};
    const auto guard = enable(options);
    for (int step = 0; step < 3; ++step) {
      const auto ours = gradients();
      for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-5, 1e-5)) << step << ", " << i;
    }
    const Stats counts = stats();
    EXPECT_EQ(counts.fused_graphs, 1U) << counts;
    EXPECT_EQ(counts.compiler_failures, 1U) << counts;
    EXPECT_EQ(counts.refused_graphs, 0U) << counts;
    EXPECT_FALSE(take_launched().empty());
    EXPECT_EQ(logs.count("a part of graph"), 1U) << logs.text();
  }
}

TEST(FailedKernels, OfAllGroupsLeaveTheGraphToATen) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const auto stock = gradients();
  hindcast::reset();
  const WithEdit refuse([](const std::string&) -> std::string { throw std::runtime_error("refused by the test"); });
  const LogCapture logs("compiled_autograd");
  const Options options{.compiler = compilers::fused(), .async = false};
  const auto guard = enable(options);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(at::equal(gradients()[0], stock[0])) << step;
  const Stats counts = stats();
  EXPECT_EQ(counts.fused_graphs, 0U) << counts;
  EXPECT_EQ(counts.compiler_failures, 1U) << counts;
}

}  // namespace
}  // namespace hindcast::tests::cuda
