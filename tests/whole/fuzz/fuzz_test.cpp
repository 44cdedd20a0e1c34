// Random programs, each run by both engines: 2,000 of them, or HINDCAST_FUZZ_SEEDS="first:count".

#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "tests/whole/fuzz/chosen_seeds.h"
#include "tests/whole/fuzz/compare.h"
#include "tests/whole/fuzz/current_seed.h"
#include "tests/whole/fuzz/generate.h"
#include "tests/whole/fuzz/report.h"

// Called by LeakSanitizer. Random programs contain reference cycles that LibTorch never frees: create_graph into `.grad`, views that are
// written with themselves.
extern "C" int __lsan_is_turned_off() { return 1; }

namespace hindcast::tests::fuzz::fuzz_test {
namespace {

constexpr uint64_t kCases = 8;  // so that ctest's halves are equal

class Fuzz : public testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() {
    name_the_seed_on_crashes();
    at::set_num_threads(1);  // some kernels wake all threads for six elements
  }
  static void TearDownTestSuite() { std::cout << "fuzz: " << total_.text() << std::endl; }
  static inline Counts total_;
};

std::string difference_of(const Program& program) { return compare(program).difference; }

TEST_P(Fuzz, BothEnginesAgree) {
  const Seeds seeds = chosen_seeds(2000);
  Counts counts;
  int failures = 0;
  for (uint64_t offset = GetParam(); offset < seeds.count; offset += kCases) {
    set_current_seed(seeds.first + offset);
    const Program program = generate(seeds.first + offset);
    const Comparison comparison = compare(program);
    counts.add(comparison.counts);
    if (comparison.difference.empty()) continue;
    if (++failures <= 2) {
      report(program, "the engines differ", comparison.difference, difference_of);
    } else {  // enough to read
      ADD_FAILURE() << "seed " << program.seed << ": the engines differ\n" << comparison.difference;
    }
  }
  total_.add(counts);
  if (counts.programs < 100) return;
  // Checks that the fuzzer is effective: most calls are taken over, most of these are hits, few steps are broken.
  EXPECT_GT(counts.hits * 2, counts.taken_over) << counts.text();
  EXPECT_GT(counts.taken_over * 10, counts.calls * 7) << counts.text();
  EXPECT_LT(counts.broken_steps * 50, counts.steps) << counts.text();
  EXPECT_LT(counts.throwing_calls * 5, counts.calls) << counts.text();
  EXPECT_GT(counts.throwing_calls, 0U) << counts.text();
  EXPECT_GT(counts.hook_calls, 0U) << counts.text();
  EXPECT_GT(counts.opaque_calls, 0U) << counts.text();
}

// A fused plan kept a gradient that waited for a kernel only in another shape, and lost it where a hook changed what followed.
TEST(FuzzFound, GradientsThatWaitInAnotherShape) {
  for (const uint64_t seed : {109851, 119805, 128655}) {
    const Program program = generate(seed);
    const Comparison comparison = compare(program);
    if (!comparison.difference.empty()) report(program, "the engines differ", comparison.difference, difference_of);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Fuzz, testing::Range<uint64_t>(0, kCases));

}  // namespace
}  // namespace hindcast::tests::fuzz::fuzz_test
