#include "base/thread_number.h"

#include <atomic>

namespace hindcast::base {

uint32_t number_of_this_thread() {
  static std::atomic<uint32_t> threads = 0;
  thread_local const uint32_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace hindcast::base
