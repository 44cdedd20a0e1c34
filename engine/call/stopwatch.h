#pragma once

#include <chrono>
#include <cstdint>

namespace hindcast::engine {

/// The time since it was made.
class Stopwatch {
 public:
  uint64_t ns() const { return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count()); }
  double us() const { return static_cast<double>(ns()) * 1e-3; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace hindcast::engine
