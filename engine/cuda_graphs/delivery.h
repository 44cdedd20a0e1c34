#pragma once
// Copies a CUDA graph's results out of its memory, to where the backward needs them.
//
// The next launch overwrites that memory, so no tensor in it may be handed out: gradients get memory of their own, laid out as
// AccumulateGrad would do it, and are added to the .grad of leaves that have one. One launch does all copies, another all additions.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace hindcast::engine {

/// The result delivered for one event step.
struct Delivered {
  uint32_t step = 0;
  at::Tensor tensor;      // what the event reads
  bool is_added = false;  // already added to the leaf's .grad: the event has nothing left to do
};

/// A view with each dim of stride 0 narrowed to one element: the elements that exist in memory.
at::Tensor without_repeats(at::Tensor tensor);
/// True if no two elements share memory, except those repeated by a stride of 0, and memory holds the values as they are read (no conj
/// or neg bit).
bool can_be_copied_as_it_lies(const at::Tensor& tensor);
/// An uninitialised tensor with the sizes and strides of `tensor`.
at::Tensor like(const at::Tensor& tensor);

/// Call it with autograd's dispatch keys excluded.
class Delivery {
 public:
  /// `expected`: the number of results, reserved so that references to delivered ones stay valid.
  explicit Delivery(size_t expected);
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  /// A copy of `made`, filled once run() has returned.
  at::Tensor copy(const at::Tensor& made);
  /// Delivers `made` to the Accumulate event of `leaf`.
  void to_leaf(torch::autograd::AccumulateGrad& leaf, const at::Tensor& made, uint32_t step);
  void to_result(const at::Tensor& made, uint32_t step) { delivered_.push_back({step, copy(made)}); }

  /// Enqueues all copies and additions on the current stream, after the work that computes the sources.
  void run();
  /// In the order in which they were requested.
  std::vector<Delivered>& delivered() { return delivered_; }

 private:
  void add_one_by_one_where_gradients_share_memory();

  struct Sum {
    at::Tensor grad, made;
    size_t delivered;                   // its index in delivered_
    std::unique_lock<std::mutex> lock;  // the leaf's mutex
  };
  std::vector<at::Tensor> to_, from_;
  std::vector<Sum> sums_;
  std::vector<Delivered> delivered_;
};

}  // namespace hindcast::engine
