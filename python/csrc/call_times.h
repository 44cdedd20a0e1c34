#pragma once
// Measures how long the engine ran, for the benchmark of the overhead of a call from Python.

#include <cstdint>
#include <ctime>

namespace hindcast::python {

/// Lives while the engine works. Counts only if `is_measured`.
class EngineTime {
 public:
  EngineTime() : begin_(is_measured ? now() : 0) {}
  ~EngineTime() {
    if (begin_ != 0) total_ns += now() - begin_;
  }
  EngineTime(const EngineTime&) = delete;
  EngineTime& operator=(const EngineTime&) = delete;

  inline static bool is_measured = false;
  inline static std::int64_t total_ns = 0;

 private:
  static std::int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  }
  const std::int64_t begin_;
};

}  // namespace hindcast::python
