#pragma once
// Calls that are left to the function itself, since a compiled function gains nothing on calls like these. Valid C++17. For backwards that
// Python calls, `program` is a capture, and `function` is the stock engine (trial.h).
//
//   - A call may gain nothing if it ran the function eagerly, or a program that may take longer than the function's few operators: one without
//     a backward, or one whose backward takes the place of a single node. The backward is timed too (time_backward.h).
//   - After some such calls in a row, the next ones are timed. If there is a program, it and the function take turns; the function's turns
//     include the look-up of the program. The least processor time of each counts.
//   - If the function alone is faster, the next calls run it with a single check: as many as take 10 ms, 255 at most. The call after them
//     is looked at. If it gains something, or has another program, this starts over.
//   - A verdict is tested again: after some such looks, or, if programs were faster, after more and more calls.

#include "base/api.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace hindcast::engine {

/// What a call that was looked at gained.
enum class Gain : std::uint8_t {
  Unknown,  // it was traced, or is a part of something else
  None,     // it ran the function eagerly
  Perhaps,  // it ran a program without a backward
  PerhapsWithBackward,
  Some,
};

/// What happens to a function's next calls. Positive: so many run the function with a single check. 0: the next one is looked at. kTimed: it is
/// looked at and timed.
using NextCalls = std::int64_t;
inline constexpr NextCalls kTimed = -1;

/// Of this thread. The clock would count what other programs do.
HINDCAST_API std::uint64_t processor_ns();

class Leaving {
 public:
  Leaving();
  ~Leaving();
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

  /// A call was looked at. `kind`: of its program.
  NextCalls looked(Gain gain, const void* kind);
  /// A timed call without a failure: it took this, the function alone `own_ns`; 0: it did not run.
  NextCalls took(std::uint64_t whole_ns, std::uint64_t own_ns);
  /// The program that is timed; null: none is.
  const void* timed_kind() const;
  /// The backward of a timed call took this; `is_own`: of one that ran the function.
  void took_backward(const void* kind, std::uint64_t ns, bool is_own);
  /// Of a timed call that has found the program `kind`: whether the function is to run in its place.
  bool is_functions_turn(const void* kind) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
  std::atomic<bool> is_idle_ = true;  // nothing but calls that gain
};

/// Of one that calls: what it was told last.
class CallsToCome {
 public:
  /// The single check.
  bool leaves_this_one() {
    for (NextCalls next = next_.load(std::memory_order_relaxed); next > 0;) {
      if (!next_.compare_exchange_weak(next, next - 1, std::memory_order_relaxed)) continue;
      left_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    return false;
  }
  bool is_timed() const { return next_.load(std::memory_order_relaxed) == kTimed; }
  void are(NextCalls next) { next_.store(next, std::memory_order_relaxed); }
  std::uint64_t left() const { return left_.load(std::memory_order_relaxed); }

 private:
  std::atomic<NextCalls> next_ = 0;
  std::atomic<std::uint64_t> left_ = 0;
};

}  // namespace hindcast::engine
