#pragma once
// Calls in a row whose programs ran up to a number or size that was another than the traced one, so that the function ran after all.

#include <atomic>
#include <cstdint>

namespace hindcast::engine {

class CallsInVain {
 public:
  /// One more. Returns true if programs are a waste: that has happened many times in a row.
  bool add() {
    constexpr uint32_t kMost = 8;
    return in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= kMost;
  }
  /// A program has run to its end.
  void end() {
    if (in_a_row_.load(std::memory_order_relaxed) != 0) in_a_row_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> in_a_row_ = 0;
};

}  // namespace hindcast::engine
