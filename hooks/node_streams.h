#pragma once
// The streams of a backward on an accelerator (CUDA, say), as the stock engine has them.
//
//   a node on the accelerator   runs on the stream of its forward, Node::stream(), and on that stream's device. The stock engine runs it in
//                               a thread of the device, where the current streams of other devices are their default ones
//   a node on the CPU           runs in the caller's thread, on the caller's streams
//   a gradient that goes from one stream to another
//                               is waited for by an event, and its memory is kept until the other stream has read it. Which stream adds
//                               two gradients that meet, and who waits for what, is the affair of LibTorch's own InputBuffer. What
//                               the InputBuffer forgets is here: where several nodes got one gradient, and it becomes the memory of a
//                               sum for one of them, the others may still read it
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

  /// Notes the streams and the device that are current: the caller's. `inputs`: flat node inputs of the backward, or 0 where all nodes have
  /// one stream, so that no gradient goes from one to another.
  NodeStreams(c10::DeviceType accelerator, uint32_t inputs);
  /// The caller's are current again.
  ~NodeStreams();
  NodeStreams(const NodeStreams&) = delete;
  NodeStreams& operator=(const NodeStreams&) = delete;

  /// Gradients go from one stream to another: it is to be told of each.
  bool has_inputs() const { return !crossing_.buffer.empty(); }

  /// Makes current what a node with this stream runs on; none: a node on the CPU.
  void enter(const MaybeStream& stream);
  /// User code ran in the entered node, and may have left another stream behind.
  void enter_again() const;

  /// A gradient of backward()'s caller for `consumer`, which alone takes it at once: there are no inputs.
  void give(const at::Tensor& root_gradient, torch::autograd::Node& consumer);
  /// The same for an input of many.
  void put_root(uint32_t input, const at::Tensor& gradient, torch::autograd::Node& consumer);
  /// What the entered node made, for an input where nothing waits yet.
  void put(uint32_t input, const at::Tensor& gradient, torch::autograd::Node& consumer);
  /// The same where `sum` waits, which gets it added; as hooks::add_gradients().
  at::Tensor add(uint32_t input, at::Tensor sum, at::Tensor gradient, bool sum_is_view, torch::autograd::Node& consumer);
  /// The entered node reads what waits at its input from now on.
  void wait(uint32_t input, const at::Tensor& gradient) const;

  /// The caller's stream of that device waits for what this one, of a leaf or a result, was given to do.
  void join(const c10::Stream& stream) const;

 private:
  /// Who a storage was given to, or added by. A weak reference keeps its address from another storage.
  struct Readers {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::SmallVector<c10::Stream, 2> streams;
  };

  void make_current(const std::vector<MaybeStream>& streams) const;
  void put(uint32_t input, const at::Tensor& gradient, const MaybeStream& producer, torch::autograd::Node& consumer);
  void note_reader(const at::Tensor& gradient, const c10::Stream& stream);
  void wait_for_readers(const at::Tensor& sum, const c10::Stream& writer) const;
  /// The caller's, of the tensor's device.
  MaybeStream stream_of_caller(const at::Tensor& tensor) const;

  const c10::impl::VirtualGuardImpl guard_;
  const c10::Device callers_device_;
  std::vector<MaybeStream> callers_;       // by device; none where the process does not use it
  std::vector<MaybeStream> of_a_device_;   // those of a thread of the stock engine
  MaybeStream entered_;                    // none: the caller's are current
  torch::autograd::InputBuffer crossing_;  // for each input, who waits for what; it holds a gradient while it adds
  std::unordered_map<const c10::StorageImpl*, Readers> readers_;
};

/// Returns when all that was given to the accelerator is done: what reads and frees tensors of any stream is behind it.
void wait_for_all_streams(c10::DeviceType accelerator);

}  // namespace hindcast::hooks
