#pragma once
// Back-off: runs the function itself where its compiled programs gain nothing. Valid C++17. For backwards that Python calls, `program` is a
// capture, and `function` is the stock engine (trial.h).
//
// - A call may gain nothing if it ran the function eagerly, or a program that may take longer than the function's few operators: one
//   without a backward, or one whose backward replaces a single node. The backward is timed too (time_backward.h).
// - After several such calls in a row, the next ones are timed. If there is a program, it and the function take turns; the function's turns
//   include the look-up of the program. The minimum processor time of each counts.
// - If the function alone is faster, the next calls run it after a single check: as many as take 10 ms, 1,023 at most. The call after them
//   is looked up again. If it gains something, or has another program, this starts over.
// - A verdict is tested again: after several such look-ups or, if programs were faster, after more and more calls.

#include <hindcast/api.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace hindcast::detail {

/// What a call that was looked up gained.
enum class Gain : std::uint8_t {
  Unknown,  // it was traced, or is part of another call
  None,     // it ran the function eagerly
  Perhaps,  // it ran a program without a backward
  PerhapsWithBackward,
  Some,
};

/// What happens to a function's next calls. Positive: that many run the function after a single check. 0: the next one is looked up.
/// kTimed: it is looked up and timed.
using NextCalls = std::int64_t;
inline constexpr NextCalls kTimed = -1;

/// Processor time of this thread. Wall-clock time would include other programs.
HINDCAST_API std::uint64_t processor_ns();

class BackOffPolicy {
 public:
  BackOffPolicy();
  ~BackOffPolicy();
  BackOffPolicy(const BackOffPolicy&) = delete;
  BackOffPolicy& operator=(const BackOffPolicy&) = delete;

  /// Notes a call that was looked up. `kind` identifies its program.
  NextCalls looked(Gain gain, const void* kind);
  /// Notes a call that threw. After many in a row the next calls run the function, untimed: no program has gained anything.
  NextCalls threw();
  /// Notes a timed call that did not fail: its time, and that of the function alone; `own_ns` 0: the function did not run.
  NextCalls took(std::uint64_t whole_ns, std::uint64_t own_ns);
  /// The program that is being timed; nullptr if none is.
  const void* timed_kind() const;
  /// Notes the time of a timed call's backward; `is_own`: the call ran the function.
  void took_backward(const void* kind, std::uint64_t ns, bool is_own);
  /// Whether a timed call that has found the program `kind` is to run the function instead.
  bool is_functions_turn(const void* kind) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
  std::atomic<bool> is_idle_ = true;  // only calls that gain so far
};

/// For one caller: the last NextCalls that it was given.
class BackOffCounter {
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

}  // namespace hindcast::detail
