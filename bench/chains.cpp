// Chains of tiny ops: what a backward costs beside its arithmetic, per node and at all.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {

void register_chains(const Settings& settings) {
  for (const int ops : {10, 100, 1000, 10000}) {
    const int pairs = ops < 10000 ? kPairs : kSlowPairs;
    const std::string size = std::to_string(ops);
    register_pair(settings, "chain/mixed/" + size, pairs, [ops] { return mixed_chain(ops); });
    register_pair(settings, "chain/mul/" + size, pairs, [ops] { return mul_chain(ops); });
  }
}

}  // namespace hindcast::bench
