// Random programs on a card: what each lets a user see is the same with the stock engine and with hindcast, and with and without CUDA
// graphs; and each kernel is compared with ATen and with float64 before it is used. HINDCAST_FUZZ_SEEDS="first:count" chooses others.

#include <ATen/Parallel.h>

#include <iostream>
#include <optional>
#include <string>

#include "tests/gpu/deterministic.h"
#include "tests/gpu/on_gpu.h"
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

class GpuFuzz : public OnTestedDevice {
 protected:
  void SetUp() override {
    OnTestedDevice::SetUp();
    if (IsSkipped()) return;
    name_the_seed_on_crashes();
    at::set_num_threads(1);
    device_of_leaves = device_of_tests();
  }
  void TearDown() override { device_of_leaves = at::kCPU; }

  using DifferenceOf = std::function<std::string(const Program&)>;

  /// `program_of`: by seed. `difference_of`: empty if there is none. The first two programs that differ are reduced, which takes long.
  void expect_none(uint64_t count, const std::string& what, const std::function<Program(uint64_t)>& program_of,
                   const DifferenceOf& difference_of) {
    const Seeds seeds = chosen_seeds(count);
    int failures = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
      set_current_seed(seed);
      const Program program = program_of(seed);
      const std::string difference = difference_of(program);
      if (difference.empty()) continue;
      if (++failures <= 2) {
        report(program, what + " (the program that follows runs on the CPU)", difference, difference_of);
      } else {
        ADD_FAILURE() << "seed " << seed << ": " << what << "\n" << difference;
      }
    }
  }

  /// With operators that add in any order on a card, the bits change by themselves.
  static bool is_unsteady(const std::vector<std::string>& events, const std::function<std::vector<std::string>()>& run_again) {
    constexpr int kTimes = 5;
    for (int again = 0; again < kTimes; ++again) {
      if (run_again() != events) return true;
    }
    return false;
  }

  /// With ATen's calls, or with kernels, compares runs with and without CUDA graphs.
  void expect_same_with_graphs(uint64_t count, const Compiler& compiler) {
    uint64_t launches = 0;
    const auto observed = [&](const Program& program, bool with_graphs) {
      const Options options = options_of_recordings(program, compiler, with_graphs);
      const LogCapture warnings("");
      hindcast::reset();
      const Guard guard = hindcast::enable(options);
      const Observed seen = interpret(program);
      launches += hindcast::stats().cuda_graph_launches;
      return seen.events;
    };
    expect_none(
        count, "with CUDA graphs it is not the same", [](uint64_t seed) { return lengthened(generate(seed)); },
        [&](const Program& program) {
          const auto expected = observed(program, false);
          const std::string difference = first_difference(expected, observed(program, true));
          return difference.empty() || is_unsteady(expected, [&] { return observed(program, false); }) ? "" : difference;
        });
    std::cout << "fuzz: " << launches << " launches of CUDA graphs" << std::endl;
    EXPECT_TRUE(launches > 0 || !is_on_card());
  }

 private:
  const SteadyLibraries steady_;
};

TEST_F(GpuFuzz, BothEnginesAgree) {
  const DeterministicOperators deterministic;
  Counts counts;
  expect_none(300, "the engines differ", generate, [&](const Program& program) {
    const Comparison comparison = compare(program);
    counts.add(comparison.counts);
    return comparison.difference;
  });
  std::cout << "fuzz: " << counts.text() << std::endl;
  if (counts.programs < 100) return;
  // Checks that the test is effective: most calls are taken over, most of these are hits, few steps are broken.
  EXPECT_GT(counts.hits * 2, counts.taken_over) << counts.text();
  EXPECT_GT(counts.taken_over * 10, counts.calls * 7) << counts.text();
  EXPECT_LT(counts.broken_steps * 10, counts.steps) << counts.text();
}

TEST_F(GpuFuzz, NoKernelIsRefused) {
  uint64_t fused = 0;
  expect_none(60, "a kernel was refused", generate, [&](const Program& program) -> std::string {
    Options options = options_of(program);
    options.compiler = compilers::fused();
    options.async = false;
    options.verify = true;
    const LogCapture warnings("");
    hindcast::reset();
    {
      const Guard guard = hindcast::enable(options);
      interpret(program);
    }
    const Stats stats = hindcast::stats();
    fused += stats.fused_graphs;
    if (stats.refused_graphs + stats.compiler_failures == 0) return "";
    // A graph refused since a replay has other bits than the capture. A refused kernel is another matter.
    const bool is_of_a_graph = warnings.count("is refused") == warnings.count("is not what the capture computed");
    const bool steady = !is_of_a_graph || !is_unsteady(interpret(program).events, [&] { return interpret(program).events; });
    return steady || stats.compiler_failures != 0 ? warnings.text() : "";
  });
  std::cout << "fuzz: " << fused << " graphs with kernels" << std::endl;
  EXPECT_GT(fused, 0U);
}

TEST_F(GpuFuzz, CudaGraphsOfATensCallsChangeNothing) {
  const DeterministicOperators deterministic;
  expect_same_with_graphs(100, compilers::fused_through_aten());
}

TEST_F(GpuFuzz, CudaGraphsOfKernelsChangeNothing) { expect_same_with_graphs(30, compilers::fused()); }

}  // namespace
}  // namespace hindcast::tests::fuzz
