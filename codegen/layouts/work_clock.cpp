#include "codegen/layouts/work_clock.h"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace hindcast::codegen {
namespace {

// nullopt: the thread has ended.
std::optional<double> us_now(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

std::optional<clockid_t> clock_of_this_thread() {
  clockid_t clock{};
  if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return std::nullopt;
  return clock;
}

}  // namespace

WorkClock::WorkClock() {
  std::mutex mutex;
  const auto add = [&] {
    const auto clock = clock_of_this_thread();
    const std::lock_guard lock(mutex);
    if (clock && std::find(threads_.begin(), threads_.end(), *clock) == threads_.end()) threads_.push_back(*clock);
  };
  add();
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) { add(); });
}

// The work is divided evenly, and the calling thread has what is not divided: if others of them end meanwhile, little is missed.
double WorkClock::us_of(c10::function_ref<void()> work) const {
  std::vector<std::optional<double>> start;
  for (const clockid_t thread : threads_) start.push_back(us_now(thread));
  work();
  double most = 0;
  for (size_t i = 0; i < threads_.size(); ++i) {
    const auto end = us_now(threads_[i]);
    if (start[i] && end) most = std::max(most, *end - *start[i]);
  }
  return most;
}

}  // namespace hindcast::codegen
