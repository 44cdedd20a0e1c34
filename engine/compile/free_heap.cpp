#include "engine/compile/free_heap.h"

#include "engine/compile/background.h"

#include <malloc.h>

#include <atomic>

namespace hindcast::engine {

void return_free_heap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void return_free_heap_after_captures() {
  constexpr unsigned kCaptures = 8;
  static std::atomic<unsigned> captures = 0;
  if ((captures.fetch_add(1, std::memory_order_relaxed) + 1) % kCaptures == 0) run_in_background({.run = return_free_heap});
}

}  // namespace hindcast::engine
