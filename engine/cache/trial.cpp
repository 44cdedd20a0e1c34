#include "engine/cache/trial.h"

#include <utility>

namespace hindcast::engine {
namespace {

thread_local Trial* current = nullptr;

detail::BackOffPolicy& policy() {
  static thread_local detail::BackOffPolicy of_thread;
  return of_thread;
}

}  // namespace

Trial::Trial(std::uint64_t started_ns) : former_(std::exchange(current, this)), started_ns_(started_ns) {}
Trial::~Trial() { current = former_; }

Trial* Trial::take() { return std::exchange(current, nullptr); }

bool Trial::is_stocks_turn(const void* capture, bool may_be_slower) {
  gain_ = may_be_slower ? detail::Gain::Perhaps : detail::Gain::Some;
  capture_ = capture;
  return is_timed() && may_be_slower && policy().is_functions_turn(capture);
}

detail::NextCalls Trial::next() {
  const detail::NextCalls next = policy().looked(gain_, capture_);
  return is_timed() ? policy().took(detail::processor_ns() - started_ns_, stock_ns_) : next;
}

}  // namespace hindcast::engine
