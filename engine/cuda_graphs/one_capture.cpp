#include "engine/cuda_graphs/one_capture.h"

#include "base/waits.h"

namespace hindcast::engine {

std::unique_lock<std::mutex> one_capture() {
  static constinit std::mutex mutex;  // user code runs under it, so that a fork cannot wait for it: CUDA does not work in a child anyway
  return base::locked_without_interpreter(mutex);
}

}  // namespace hindcast::engine
