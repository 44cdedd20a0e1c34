#pragma once
// CPU time of what this thread has done, by itself or by the threads that LibTorch's parallel regions give it: what other threads of the process do
// meanwhile is not in it, nor the time for which other processes had the CPU.

#include <time.h>

#include <vector>

namespace hindcast::codegen {

class WorkClock {
 public:
  /// Finds out who works for this thread.
  WorkClock();
  /// Since some time. To be asked on the thread that made the clock.
  double us() const;

 private:
  std::vector<clockid_t> others_;  // of the threads that do not
};

}  // namespace hindcast::codegen
