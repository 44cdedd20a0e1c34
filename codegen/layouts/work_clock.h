#pragma once
// How long a piece of work takes a thread and those that LibTorch's parallel regions give it, without the time for which others had the CPU: the
// CPU time of the one among them that has most to do. On an idle machine that is the time by the clock.

#include <c10/util/FunctionRef.h>
#include <time.h>

#include <vector>

namespace hindcast::codegen {

class WorkClock {
 public:
  /// Finds out who works for this thread.
  WorkClock();
  /// Of `work`, done on the thread that made the clock.
  double us_of(c10::function_ref<void()> work) const;

 private:
  std::vector<clockid_t> threads_;
};

}  // namespace hindcast::codegen
