#pragma once
// Measures whether hits are faster than the stock engine, for a front end with per-call overhead of its own: Python. A backward of few
// nodes may take longer with hindcast than on PyTorch's engine. See back_off_policy.h.

#include "hindcast/detail/back_off_policy.h"

#include <cstdint>

namespace hindcast::engine {

/// One call from a front end, on this thread.
class Trial {
 public:
  /// `started_ns`: processor_ns() at the call's start; 0 if the call is not timed.
  explicit Trial(std::uint64_t started_ns);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// The trial of the backward that starts now; nullptr if no front end made one, and for backwards in hooks.
  static Trial* take();

  /// Reports that `capture` serves the call. Returns true if the stock engine is to run it, so that the two are compared.
  bool is_stocks_turn(const void* capture, bool may_be_slower);
  bool is_timed() const { return started_ns_ != 0; }
  void stock_took(std::uint64_t ns) { stock_ns_ = ns; }
  /// After the call: how the front end runs its next calls on this thread.
  detail::NextCalls next();

 private:
  Trial* const former_;
  const std::uint64_t started_ns_;
  std::uint64_t stock_ns_ = 0;
  detail::Gain gain_ = detail::Gain::Unknown;
  const void* capture_ = nullptr;
};

}  // namespace hindcast::engine
