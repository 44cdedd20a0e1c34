// Accumulation into `.grad` dominates the backward: five thousand leaves of 8 floats, and one that gets the incoming gradient unchanged.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {

void register_leaves(const Settings& settings) {
  register_pair(settings, "leaves/mul/5000", kSlowPairs, [] { return mul_leaves(5000); });
  register_pair(settings, "leaves/mul/5000/zeroed", kSlowPairs, [] { return zeroed_in_place(mul_leaves(5000)); });
  register_pair(settings, "leaves/cat/5000", kSlowPairs, [] { return cat_leaves(5000); });
  register_pair(settings, "leaves/residual/8192x1024", kSlowPairs, [] { return residual(8192, 1024); });
}

}  // namespace hindcast::bench
