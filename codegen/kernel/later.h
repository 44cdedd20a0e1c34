#pragma once
// Work that a kernel finds for itself while it is called, and that no call waits for. Who asks a backend for a kernel says what does it.

#include <functional>

namespace hindcast::codegen {

struct LaterJob {
  std::function<void()> run;        // throws nothing; may run twice: in a parent and in its child
  std::function<bool()> is_wanted;  // asked before it runs
};

/// Called on any thread, in the middle of a call: takes the job, and returns at once.
using RunLater = void (*)(LaterJob job);

}  // namespace hindcast::codegen
