#pragma once
// The sizes for which a fitted program was proved: at which it was compared with a trace.

#include "base/fork.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace hindcast::engine {

/// Values of a fit's symbols. Safe from many threads.
class ProvedSizes {
 public:
  /// `infers`: values between proved ones count as proved, too.
  explicit ProvedSizes(bool infers) : infers_(infers) {}
  void add(const std::vector<int64_t>& values);
  bool has(const std::vector<int64_t>& values) const;

 private:
  const bool infers_;
  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // guards what follows
  std::set<std::vector<int64_t>> each_;                             // empty if sizes are inferred
  std::vector<std::pair<int64_t, int64_t>> between_;                // by symbol, if sizes are inferred
};

}  // namespace hindcast::engine
