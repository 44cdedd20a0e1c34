#pragma once
// Work for a device that was written down instead of done, to be done as often as wanted: a CUDA graph.

#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>

namespace hindcast::codegen {

/// Memory that kernels read, and lies elsewhere now.
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

  /// On the current stream of its device, behind all that this stream was given. Returns before the work is done.
  virtual void launch() = 0;
  /// From the next launch on, kernels of hindcast read each memory at its new place. ATen's kernels are not told: nothing of theirs may
  /// read it. False: a kernel was made for the place, as for its alignment; the recording is of no use then.
  virtual bool move(c10::ArrayRef<MovedMemory> moved) = 0;
  /// Launches of Backend::run_foreach() that `give` makes go nowhere: from the next launch of the recording on, those that were recorded have
  /// their arguments, one after the other. False: they are others, and the recording is of no use any more.
  virtual bool replace_sets(c10::function_ref<void()> give) = 0;
  /// Of device memory, for what its work makes.
  virtual size_t bytes() const = 0;

 protected:
  Recording() = default;
};

}  // namespace hindcast::codegen
