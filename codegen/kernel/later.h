#pragma once
// Background work that a kernel requests during a call, and that no call waits for. The caller of Backend::kernel() supplies what runs it.

#include <functional>

namespace hindcast::codegen {

struct LaterJob {
  std::function<void()> run;        // must not throw; may run twice, in a parent process and in its child
  std::function<bool()> is_wanted;  // checked before it runs
};

/// Called on any thread, in the middle of a call. Must queue the job and return at once.
using RunLater = void (*)(LaterJob job);

}  // namespace hindcast::codegen
