#include "base/interpreter_error.h"

#include <atomic>

namespace hindcast::base {
namespace {

constinit std::atomic<void (*)()> forget_error = nullptr;

}  // namespace

void forget_interpreter_error_by(void (*forget)()) { forget_error.store(forget, std::memory_order_release); }

void forget_interpreter_error() {
  if (const auto forget = forget_error.load(std::memory_order_acquire)) forget();
}

}  // namespace hindcast::base
