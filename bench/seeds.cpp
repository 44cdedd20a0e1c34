// The examples of two tutorials, whose backwards are memory-bound: kernels that fuse a whole backward (--fused) should be twice as fast as
// stock or reach 70 % of the bytes' floor, whichever is easier.
// The sizes: a tensor of 4 MB, one of 16 MB, and the tutorial's 8 MB.

#include "bench/harness.h"
#include "bench/seed_workloads.h"
#include "bench/suites.h"

namespace hindcast::bench {

void register_seeds(const Settings& settings) {
  const auto aot = [&](const std::string& name, const Build& build) { register_pair(settings, "seed/aot/" + name, kSlowPairs, build); };
  aot("set_to_none", [] { return aot_tutorial(AfterBackward::Nothing); });
  aot("accumulate", [] { return aot_tutorial_accumulating(); });
  aot("clip_sgd", [] { return aot_tutorial(AfterBackward::ClipAndSgd); });
  aot("clip_adam", [] { return aot_tutorial(AfterBackward::ClipAndAdam); });

  for (const Pattern& pattern : xformers_patterns()) {
    const auto row = [&](const std::string& size, int pairs, std::vector<int64_t> sizes) {
      register_pair(settings, "seed/xformers/" + pattern.name + "/" + size, pairs, [build = pattern.build, sizes] { return build(sizes); });
    };
    row("8x256x512", 51, {8, 256, 512});
    row("8x512x1024", kSlowPairs, {8, 512, 1024});
  }
}

}  // namespace hindcast::bench
