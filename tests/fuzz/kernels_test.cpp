// Random programs with kernels of hindcast's own, each compared with ATen and with float64 before it serves.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/fuzz/chosen_seeds.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/generate.h"
#include "tests/fuzz/interpret.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::fuzz {
namespace {

TEST(FuzzKernels, NoneIsRefused) {
#ifndef HINDCAST_HAS_CLANG
  GTEST_SKIP() << "built without Clang";
#endif
  at::set_num_threads(1);
  const auto [first, count] = chosen_seeds(30);
  uint64_t fused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
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
    fused += stats.fused_graphs;
  }
  if (count >= 30) EXPECT_GT(fused, 0U);
}

}  // namespace
}  // namespace hindcast::tests::fuzz
