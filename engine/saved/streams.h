#pragma once
// The streams of an accelerator that a checkpoint's function starts on, and tensors that go from one stream to another.
//
// A node that asks for its saved tensor runs on its own stream, which need not be the one that the function started on. The second run starts
// where the first one did, and who takes a tensor waits for the stream that made it.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

namespace hindcast::engine {

/// Of the tensor's device in this thread; none for the CPU.
std::optional<c10::Stream> current_stream_for(const at::Tensor& tensor);

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

/// While alive, these are current again. They wait for those that were, which in the end wait for them.
class StartStreams::Scope {
 public:
  Scope(const StartStreams& start, c10::ArrayRef<at::Tensor> inputs);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::optional<c10::Device> device_;
  std::vector<c10::Stream> before_, during_;
};

}  // namespace hindcast::engine
