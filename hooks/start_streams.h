#pragma once
// The streams of an accelerator that a function starts on, and tensors that go from one stream to another.
//
// Some of a forward runs once more in the backward, or has its backward in one node. A node has one stream, of one device, which need not be
// the one that the function started on. What runs then starts where the first run did, and who takes a tensor waits for the stream that made
// it.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <vector>

namespace hindcast::hooks {

/// Of the tensor's device in this thread; none for the CPU.
std::optional<c10::Stream> current_stream_for(const at::Tensor& tensor);

/// The allocator keeps the tensor's memory until this stream has read it.
void note_reader(const at::Tensor& tensor, const c10::Stream& reader);

/// What the current stream is given from now on may read the tensor, which `maker` has made.
void hand_over(const at::Tensor& tensor, const std::optional<c10::Stream>& maker);

class StartStreams {
 public:
  /// The current device and streams, for the devices of the inputs.
  explicit StartStreams(c10::ArrayRef<at::Tensor> inputs);

  class Scope;

 private:
  std::optional<c10::Device> device_;
  std::vector<c10::Stream> streams_;
};

/// While alive, these are current again. They wait for those that were, which in the end wait for them; and so with `node`, the stream of the
/// node that asks: the engine has told no other one of the node's inputs, and orders no other one with those who read its results.
class StartStreams::Scope {
 public:
  Scope(const StartStreams& start, c10::ArrayRef<at::Tensor> inputs, std::optional<c10::Stream> node = std::nullopt);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::optional<c10::Device> device_;
  const std::optional<c10::Stream> node_;
  std::vector<c10::Stream> before_, during_;
};

}  // namespace hindcast::hooks
