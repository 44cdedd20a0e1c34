#pragma once
// Device work captured once, to be launched any number of times: a CUDA graph.

#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>

namespace hindcast::codegen {

/// Memory that captured kernels read and that has moved.
struct MovedMemory {
  const void* from = nullptr;
  const void* to = nullptr;
  int64_t bytes = 0;
};

class Recording {
 public:
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Enqueues the work on the current stream of its device. Returns before the work is done.
  virtual void launch() = 0;
  /// From the next launch on, hindcast's kernels read each memory at its new address. ATen's kernels are not updated: none of them may read
  /// it. Returns false if a kernel depends on the old address, for example on its alignment; the recording is then unusable.
  virtual bool move(c10::ArrayRef<MovedMemory> moved) = 0;
  /// Runs `give`, whose launches by Backend::run_foreach() are not executed; their arguments replace, in order, those of the captured
  /// run_foreach() launches from the recording's next launch on. Returns false if they do not match; the recording is then unusable.
  virtual bool replace_sets(c10::function_ref<void()> give) = 0;
  /// Bytes of device memory that it holds for its results and temporaries.
  virtual size_t bytes() const = 0;

 protected:
  Recording() = default;
};

}  // namespace hindcast::codegen
