// Random programs with hindcast's kernels, each compared with ATen and with float64 before it is used.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/support/log_capture.h"
#include "tests/whole/fuzz/chosen_seeds.h"
#include "tests/whole/fuzz/compare.h"
#include "tests/whole/fuzz/generate.h"
#include "tests/whole/fuzz/interpret.h"

namespace hindcast::tests::fuzz {
namespace {

/// Graphs that ran with kernels.
uint64_t run_verified(uint64_t seed) {
  const Program program = generate(seed);
  const LogCapture warnings("");
  hindcast::reset();
  Options options = options_of(program);
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  {
    const Guard guard = hindcast::enable(options);
    interpret(program);
  }
  const Stats stats = hindcast::stats();
  EXPECT_EQ(stats.refused_graphs + stats.compiler_failures, 0U) << "seed " << seed << "\n" << warnings.text();
  return stats.fused_graphs;
}

class FuzzKernels : public testing::Test {
 protected:
  void SetUp() override {
#ifndef HINDCAST_HAS_CLANG
    GTEST_SKIP() << "built without Clang";
#endif
    at::set_num_threads(1);
  }
};

TEST_F(FuzzKernels, NoneIsRefused) {
  const auto [first, count] = chosen_seeds(30);
  uint64_t fused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) fused += run_verified(seed);
  if (count >= 30) EXPECT_GT(fused, 0U);
}

// Correct kernels were refused: for the sign of a zero that a pass does not keep; for the rounding of two terms that cancel.
TEST_F(FuzzKernels, NoneIsRefusedThatOnceWas) {
  for (const uint64_t seed : {600471, 600907}) EXPECT_GT(run_verified(seed), 0U);
}

}  // namespace
}  // namespace hindcast::tests::fuzz
