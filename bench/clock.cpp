#include "bench/clock.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <ctime>

namespace hindcast::bench {

double now_us() {
  if (at::get_num_threads() == 1) {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace hindcast::bench
