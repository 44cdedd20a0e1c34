// Random programs on the fake card: everything that a user can see is the same with and without CUDA graphs, to the bit.

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "tests/engine/cuda_graphs/fake_card.h"
#include "tests/gpu/programs/recorded_fuzz.h"
#include "tests/support/log_capture.h"
#include "tests/whole/fuzz/chosen_seeds.h"
#include "tests/whole/fuzz/compare.h"
#include "tests/whole/fuzz/current_seed.h"
#include "tests/whole/fuzz/generate.h"
#include "tests/whole/fuzz/interpret.h"
#include "tests/whole/fuzz/report.h"

namespace hindcast::tests::fuzz {
namespace {

constexpr uint64_t kCases = 4;  // so that ctest's halves are equal

class FuzzRecordings : public testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() {
    install_fake_card();
    name_the_seed_on_crashes();
    at::set_num_threads(1);
    device_of_leaves = fake();
  }
  static void TearDownTestSuite() { device_of_leaves = at::kCPU; }

  struct Run {
    Observed observed;
    Stats stats;
    std::vector<std::string> errors;  // of the device
  };

  static Run run(const Program& program, const Compiler& compiler, bool with_graphs) {
    const Options options = options_of_recordings(program, compiler, with_graphs);
    const LogCapture warnings("");
    hindcast::reset();
    synchronize_fake_device();
    take_unordered();
    Run run;
    {
      const Guard guard = hindcast::enable(options);
      run.observed = interpret(program);
    }
    run.stats = hindcast::stats();
    hindcast::reset();
    run.errors = take_unordered();
    for (std::string& error : take_graph_errors()) run.errors.push_back(std::move(error));
    return run;
  }

  std::string difference_of(const Program& program, const Compiler& compiler) {
    const Run plain = run(program, compiler, false), recorded = run(program, compiler, true);
    launches_ += recorded.stats.cuda_graph_launches;
    std::string difference = first_difference(plain.observed.events, recorded.observed.events);
    for (const std::string& error : recorded.errors) {
      if (plain.errors.empty()) difference += "  " + error + "\n";
    }
    return difference;
  }

  void expect_none(uint64_t count, const Compiler& compiler) {
    const Seeds seeds = chosen_seeds(count);
    for (uint64_t offset = GetParam(); offset < seeds.count; offset += kCases) {
      set_current_seed(seeds.first + offset);
      const Program program = lengthened(generate(seeds.first + offset));
      const std::string difference = difference_of(program, compiler);
      if (difference.empty()) continue;
      report(program, "with CUDA graphs it is not the same (the program that follows runs on the CPU)", difference,
             [&](const Program& smaller) { return difference_of(smaller, compiler); });
    }
    std::cout << "fuzz: " << launches_ << " launches of CUDA graphs" << std::endl;
    if (seeds.count >= 100) {
      EXPECT_GT(launches_, seeds.count);
    }
  }

  /// LibTorch warns of each result of the fake device that it was resized.
  struct NoWarnings : c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override {}
  };

  const CachedFakeMemory cached_;
  NoWarnings no_warnings_;
  const c10::WarningUtils::WarningHandlerGuard silence_{&no_warnings_};
  uint64_t launches_ = 0;
};

TEST_P(FuzzRecordings, OfATensCalls) { expect_none(1000, compilers::fused_through_aten()); }

// A kernel of the emulator's takes a second to compile.
TEST_P(FuzzRecordings, OfKernels) { expect_none(40, compilers::fused()); }

INSTANTIATE_TEST_SUITE_P(Seeds, FuzzRecordings, testing::Range<uint64_t>(0, kCases));

}  // namespace
}  // namespace hindcast::tests::fuzz
