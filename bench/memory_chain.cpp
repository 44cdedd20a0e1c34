// Thirty sin of 8 MB: a backward that keeps a saved tensor or a gradient too long shows in
// peak_ratio, by 8 MB of about 260.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {

void register_memory_chain(const Settings& settings) {
  constexpr int64_t kFloats = (8 << 20) / sizeof(float);
  register_pair(settings, "memory/sin_8mb/30", 9, [] { return sin_chain(30, kFloats); });
}

}  // namespace hindcast::bench
