#pragma once
// The streams of an accelerator that a function starts on, and tensors that go from one stream to another.
//
// Some of a forward runs once more in the backward, or has its backward in one node. A node has one stream, of one device, which need not be
// the one that the function started on. What runs then starts where the first run did, and who takes a tensor waits for the stream that made
// it.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <vector>

namespace hindcast::hooks {

/// Of the tensor's device in this thread; none for the CPU.
std::optional<c10::Stream> current_stream_for(const at::Tensor& tensor);

/// What `later` is given from now on waits for what `earlier` was given so far.
void order(const c10::Stream& earlier, const c10::Stream& later);

/// The allocator keeps the tensor's memory until this stream has read it.
void keep_for(const at::Tensor& tensor, const c10::Stream& reader);

/// What the current stream is given from now on may read the tensor, which `maker` has made.
void hand_over(const at::Tensor& tensor, const std::optional<c10::Stream>& maker);

/// The devices of an accelerator that tensors are on, each once.
c10::SmallVector<c10::Device, 2> accelerators_of(c10::ArrayRef<at::Tensor> tensors);

/// The device and the streams that are current now, of some devices.
class StartStreams {
 public:
  /// `devices`: of the accelerator.
  explicit StartStreams(c10::ArrayRef<c10::Device> devices);

  class Scope;

 private:
  std::optional<c10::Device> device_;
  std::vector<c10::Stream> streams_;
};

/// While alive, they are current again. They wait for those that were. With `node`, the stream of the autograd node that asks, they wait for
/// that stream and no other: the engine orders it alone with who made the node's inputs and who reads its results.
class StartStreams::Scope {
 public:
  /// `inputs`: what is read now. Their memory is kept until then.
  Scope(const StartStreams& start, c10::ArrayRef<at::Tensor> inputs, std::optional<c10::Stream> node = std::nullopt);
  /// The end of the work: who was waited for waits for it. Not where it threw.
  void leave() const;

 private:
  /// Puts back what was current. A member: the constructor may throw.
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
