#include "codegen/layouts/one_thread.h"

#include <ATen/Parallel.h>
#include <time.h>

namespace hindcast::codegen {

// A nested parallel region runs on the thread that enters it. The first of the outer region's two parts runs on the calling thread.
void on_one_thread(c10::function_ref<void()> work) {
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t) {
    if (begin == 0) work();
  });
}

double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

}  // namespace hindcast::codegen
