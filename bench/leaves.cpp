// Five thousand leaves of 8 floats: accumulation into `.grad` is most of the backward.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {

void register_leaves(const Settings& settings) {
  register_pair(settings, "leaves/mul/5000", kSlowPairs, [] { return mul_leaves(5000); });
  register_pair(settings, "leaves/mul/5000/zeroed", kSlowPairs, [] { return zeroed_in_place(mul_leaves(5000)); });
  register_pair(settings, "leaves/cat/5000", kSlowPairs, [] { return cat_leaves(5000); });
}

}  // namespace hindcast::bench
