#pragma once
// For the benchmark of what a call from Python costs above the engine's work: how long the engine ran.

#include <cstdint>
#include <ctime>

namespace hindcast::python {

/// While one lives, the engine works. Only counted where somebody measures.
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
