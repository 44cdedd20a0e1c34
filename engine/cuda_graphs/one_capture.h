#pragma once
// One capture of a CUDA graph at a time, in the whole process: captures share a stream, and the state of random generators.

#include <mutex>

namespace hindcast::engine {

/// Waits until no other thread captures. A capture may run Python code, so a thread waits without Python's GIL.
[[nodiscard]] std::unique_lock<std::mutex> one_capture();

}  // namespace hindcast::engine
