#pragma once
// Whether backwards that are found gain anything, for a front end whose own part of a call counts: Python's. A backward of few nodes may
// take longer there than on PyTorch's engine. See leaving.h.

#include "engine/leaving.h"

#include <cstdint>

namespace hindcast::engine {

/// One call of a front end, on this thread.
class Trial {
 public:
  /// `started_ns`: processor_ns() then; 0: the call is not timed.
  explicit Trial(std::uint64_t started_ns);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Of the backward that starts now; null where no front end asks, and for backwards in hooks.
  static Trial* take();

  /// A capture serves the call. True: it is the stock engine's turn.
  bool is_stocks_turn(const void* capture, bool may_be_slower);
  bool is_timed() const { return started_ns_ != 0; }
  void stock_took(std::uint64_t ns) { stock_ns_ = ns; }
  /// When the call has ended: of the front end's next ones, on this thread.
  NextCalls next();

 private:
  Trial* const former_;
  const std::uint64_t started_ns_;
  std::uint64_t stock_ns_ = 0;
  Gain gain_ = Gain::Unknown;
  const void* capture_ = nullptr;
};

}  // namespace hindcast::engine
