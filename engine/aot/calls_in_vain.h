#pragma once
// Counts consecutive calls whose program ran for nothing: a number or a data-dependent size differed from the traced one, so that the
// function had to run.

#include <atomic>
#include <cstdint>

namespace hindcast::engine {

class CallsInVain {
 public:
  /// Counts such a call. Returns true if there have been so many in a row that running programs is a waste.
  bool add() {
    constexpr uint32_t kMost = 8;
    return in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= kMost;
  }
  /// Starts counting anew: a program has run to its end.
  void end() {
    if (in_a_row_.load(std::memory_order_relaxed) != 0) in_a_row_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> in_a_row_ = 0;
};

}  // namespace hindcast::engine
