#include "base/waits.h"

#include <atomic>

namespace hindcast::base {
namespace {

constinit std::atomic<void (*)(void (*)(void*), void*)> around = nullptr;

}  // namespace

void wait_without_interpreter_by(void (*around_waits)(void (*wait)(void* argument), void* argument)) {
  around.store(around_waits, std::memory_order_release);
}

void wait_without_interpreter(void (*wait)(void* argument), void* argument) {
  if (const auto around_waits = around.load(std::memory_order_acquire)) return around_waits(wait, argument);
  wait(argument);
}

}  // namespace hindcast::base
