// Random programs with functions, each run eagerly and with its functions compiled ahead of time: 600 of them, or
// HINDCAST_FUZZ_SEEDS="first:count".

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "codegen/plan/prepared_run.h"
#include "tests/whole/fuzz/chosen_seeds.h"
#include "tests/whole/fuzz/compare_functions.h"
#include "tests/whole/fuzz/current_seed.h"
#include "tests/whole/fuzz/functions.h"
#include "tests/whole/fuzz/report.h"

namespace hindcast::tests::fuzz {
namespace {

constexpr uint64_t kCases = 4;

class FuzzFunctions : public testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() {
    name_the_seed_on_crashes();
    at::set_num_threads(1);
    codegen::PreparedRuns::set_first_recorded(1);  // programs run a few times each
  }
  static void TearDownTestSuite() { std::cout << "fuzz functions: " << total_.text() << std::endl; }
  static inline FunctionCounts total_;
};

std::string difference_of(const Program& program) { return compare_functions(program).difference; }

TEST_P(FuzzFunctions, GiveTheSame) {
  const Seeds seeds = chosen_seeds(600);
  FunctionCounts counts;
  int failures = 0;
  for (uint64_t offset = GetParam(); offset < seeds.count; offset += kCases) {
    set_current_seed(seeds.first + offset);
    const Program program = generate_with_functions(seeds.first + offset);
    const FunctionComparison comparison = compare_functions(program);
    counts.add(comparison.counts);
    if (comparison.difference.empty()) continue;
    if (++failures <= 2) {
      report(program, "compiled functions give something else", comparison.difference, difference_of);
    } else {
      ADD_FAILURE() << "seed " << program.seed << ": compiled functions give something else\n" << comparison.difference;
    }
  }
  total_.add(counts);
  if (counts.programs < 100) return;
  // Checks that the test is effective.
  EXPECT_GT(counts.functions, counts.programs) << counts.text();
  EXPECT_GT(counts.calls.hits * 3, counts.calls.calls) << counts.text();
  EXPECT_LT(counts.calls.eager * 5, counts.calls.calls) << counts.text();
  EXPECT_GT(counts.calls.backwards * 5, counts.calls.calls) << counts.text();
  EXPECT_GT(counts.exact_runs * 3, counts.runs) << counts.text();
  EXPECT_LT(counts.rounded_runs * 20, counts.runs) << counts.text();
  for (const uint64_t count : {counts.writing, counts.drawing, counts.sharing}) EXPECT_GT(count * 20, counts.functions) << counts.text();
  uint64_t stopped = 0;
  for (const auto& [reason, count] : counts.stopped) stopped += count;
  EXPECT_LT(stopped * 8, counts.runs) << counts.text();
}

TEST(FuzzFunctionKernels, GiveTheSame) {
#ifndef HINDCAST_HAS_CLANG
  GTEST_SKIP() << "built without Clang";
#endif
  at::set_num_threads(1);
  const Seeds seeds = chosen_seeds(20);
  FunctionCounts counts;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    set_current_seed(seed);
    const FunctionComparison comparison = compare_functions(generate_with_functions(seed), /*kernels=*/true);
    counts.add(comparison.counts);
    EXPECT_EQ(comparison.difference, "") << "seed " << seed << ", with kernels";
  }
  if (seeds.count >= 20) EXPECT_GT(counts.fused, 0U);
  std::cout << "fuzz functions with kernels: " << counts.text() << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Seeds, FuzzFunctions, testing::Range<uint64_t>(0, kCases));

}  // namespace
}  // namespace hindcast::tests::fuzz
