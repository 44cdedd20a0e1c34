#pragma once
// Reproduces the stock engine's stream semantics of a backward on an accelerator (such as CUDA).
//
//   a node on the accelerator   runs on the stream of its forward, Node::stream(), and on that stream's device. The stock engine runs it in
//                               a thread of the device, where the current streams of other devices are their default ones
//   a node on the CPU           runs in the caller's thread, on the caller's streams
//   a gradient that crosses from one stream to another
//                               gets an event to wait for, and its memory is kept until the other stream has read it. LibTorch's own
//                               InputBuffer decides which stream adds two gradients, and who waits for what. This file adds what the
//                               InputBuffer misses: if several nodes received one gradient, and one of them accumulates a sum into its
//                               memory, the others may not have read it yet
//   at the end                  the caller's streams wait for those of leaves and results
//
// hindcast runs all nodes in the caller's thread, one after the other, and sets the current streams instead.

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace hindcast::hooks {

class NodeStreams {
 public:
  using MaybeStream = std::optional<c10::Stream>;

  /// Saves the current streams and device: the caller's. `inputs`: number of flat node inputs of the backward, or 0 if all nodes share one
  /// stream, so that no gradient crosses streams.
  NodeStreams(c10::DeviceType accelerator, uint32_t inputs);
  /// Restores the caller's streams and device.
  ~NodeStreams();
  NodeStreams(const NodeStreams&) = delete;
  NodeStreams& operator=(const NodeStreams&) = delete;

  /// Whether gradients cross streams, and put() and add() must be called for each.
  bool has_inputs() const { return !crossing_.buffer.empty(); }

  /// Makes current what a node with this stream runs on; nullopt: a node on the CPU.
  void enter(const MaybeStream& stream);
  /// Call after user code ran in the entered node: it may have changed the current stream.
  void enter_again() const;

  /// Passes a gradient of backward()'s caller to `consumer`, its only consumer, at once; used without inputs.
  void give(const at::Tensor& root_gradient, torch::autograd::Node& consumer);
  /// The same for one of many inputs.
  void put_root(uint32_t input, const at::Tensor& gradient, torch::autograd::Node& consumer);
  /// Passes a result of the entered node to an input that holds nothing yet.
  void put(uint32_t input, const at::Tensor& gradient, torch::autograd::Node& consumer);
  /// The same for an input that holds `sum`: adds the gradient, as hooks::add_gradients().
  at::Tensor add(uint32_t input, at::Tensor sum, at::Tensor gradient, bool sum_is_view, torch::autograd::Node& consumer);
  /// From now on, the entered node reads the gradient at its input.
  void wait(uint32_t input, const at::Tensor& gradient) const;

  /// The caller's stream on that device waits for the work enqueued on `stream`, which belongs to a leaf or a result.
  void join(const c10::Stream& stream) const;

 private:
  /// The streams to which a storage was passed, or on which it was added. The weak reference prevents reuse of its address.
  struct Readers {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::SmallVector<c10::Stream, 2> streams;
  };

  void make_current(const std::vector<MaybeStream>& streams) const;
  void put(uint32_t input, const at::Tensor& gradient, const MaybeStream& producer, torch::autograd::Node& consumer);
  void note_reader(const at::Tensor& gradient, const c10::Stream& stream);
  void wait_for_readers(const at::Tensor& sum, const c10::Stream& writer) const;
  /// The caller's stream on the tensor's device.
  MaybeStream stream_of_caller(const at::Tensor& tensor) const;

  const c10::impl::VirtualGuardImpl guard_;
  const c10::Device callers_device_;
  std::vector<MaybeStream> callers_;       // by device; nullopt if the process does not use it
  std::vector<MaybeStream> of_a_device_;   // those of a device thread of the stock engine
  MaybeStream entered_;                    // nullopt: the caller's are current
  torch::autograd::InputBuffer crossing_;  // per input, who waits for what; holds a gradient only while adding
  std::unordered_map<const c10::StorageImpl*, Readers> readers_;
};

/// Returns when all work on the accelerator is done, after which tensors of any stream can be read and freed.
void wait_for_all_streams(c10::DeviceType accelerator);

}  // namespace hindcast::hooks
