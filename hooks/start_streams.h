#pragma once
// The accelerator streams on which a function starts, and tensors that cross streams.
//
// Parts of a forward are recomputed in the backward, or have their backward in one node. A node has one stream, on one device, which may
// not be the one on which the function started. So such code starts on the streams of the first run, and a reader of a tensor waits for the
// stream that made it.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <vector>

namespace hindcast::hooks {

/// This thread's current stream on the tensor's device; nullopt for the CPU.
std::optional<c10::Stream> current_stream_for(const at::Tensor& tensor);

/// Work enqueued on `later` from now on waits for all work enqueued on `earlier` so far.
void order(const c10::Stream& earlier, const c10::Stream& later);

/// The allocator keeps the tensor's memory until this stream has read it.
void keep_for(const at::Tensor& tensor, const c10::Stream& reader);

/// Work enqueued on the current stream from now on may read the tensor, which `maker` has made.
void hand_over(const at::Tensor& tensor, const std::optional<c10::Stream>& maker);

/// The accelerator devices of `tensors`, each once.
c10::SmallVector<c10::Device, 2> accelerators_of(c10::ArrayRef<at::Tensor> tensors);

/// The current device, and the current streams of some devices, as of construction.
class StartStreams {
 public:
  /// `devices`: accelerator devices.
  explicit StartStreams(c10::ArrayRef<c10::Device> devices);

  class Scope;

 private:
  std::optional<c10::Device> device_;
  std::vector<c10::Stream> streams_;
};

/// While alive, the device and streams of `start` are current, and wait for the streams that were current before. With `node`, the stream
/// of the calling autograd node, they wait for that stream alone: the engine orders only it with the producers of the node's inputs and the
/// readers of its results.
class StartStreams::Scope {
 public:
  /// `inputs`: tensors that are read now. Their memory is kept until then.
  Scope(const StartStreams& start, c10::ArrayRef<at::Tensor> inputs, std::optional<c10::Stream> node = std::nullopt);
  /// At the end of the work: the streams that were waited for wait for it. Not called if it threw.
  void leave() const;

 private:
  /// Restores the former streams and device. A member, since the constructor may throw.
  struct Former {
    ~Former();
    std::vector<c10::Stream> streams;
    std::optional<c10::Device> device;
  };

  const std::optional<c10::Stream> node_;
  const std::vector<c10::Stream> streams_;
  Former former_;
};

}  // namespace hindcast::hooks
