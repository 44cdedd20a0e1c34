#include "engine/aot/proved_sizes.h"

#include <algorithm>
#include <cstddef>

namespace hindcast::engine {

void ProvedSizes::add(const std::vector<int64_t>& values) {
  const std::lock_guard lock(mutex_);
  constexpr size_t kMost = 4096;  // forgotten sizes can be proved again
  if (!infers_) {
    if (each_.size() >= kMost) each_.clear();
    each_.insert(values);
    return;
  }
  for (size_t s = 0; s < values.size(); ++s) {
    if (s == between_.size()) between_.emplace_back(values[s], values[s]);
    between_[s] = {std::min(between_[s].first, values[s]), std::max(between_[s].second, values[s])};
  }
}

bool ProvedSizes::has(const std::vector<int64_t>& values) const {
  const std::lock_guard lock(mutex_);
  if (!infers_) return each_.contains(values);
  for (size_t s = 0; s < between_.size(); ++s) {
    if (values[s] < between_[s].first || values[s] > between_[s].second) return false;
  }
  return true;
}

}  // namespace hindcast::engine
