#include "codegen/layouts/work_clock.h"

#include <ATen/Parallel.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>

namespace hindcast::codegen {
namespace {

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// As pthread_getcpuclockid() makes it, from a number where there is no pthread_t.
clockid_t clock_of(pid_t thread) { return static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3 | 6U); }

double us_of(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;  // the thread has ended
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

std::vector<pid_t> workers() {
  std::mutex mutex;
  std::vector<pid_t> all = {this_thread()};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    all.push_back(this_thread());
  });
  return all;
}

}  // namespace

WorkClock::WorkClock() {
  const std::vector<pid_t> own = workers();
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const auto thread = static_cast<pid_t>(std::stol(task.path().filename().string()));
    if (std::find(own.begin(), own.end(), thread) == own.end()) others_.push_back(clock_of(thread));
  }
}

// By what others have not done: of the workers some may end, and others take their place.
double WorkClock::us() const {
  double us = us_of(CLOCK_PROCESS_CPUTIME_ID);
  for (const clockid_t other : others_) us -= us_of(other);
  return us;
}

}  // namespace hindcast::codegen
