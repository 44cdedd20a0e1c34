#pragma once
// From a recording's memory to where a backward wants its results.
//
// The next launch writes to that memory again, so nothing of it may be handed out: gradients get memory of their own, as AccumulateGrad
// would lay it out, and leaves that have a gradient get theirs added. All of them are copied in one launch, and added in one.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace hindcast::engine {

/// For one step that is an event.
struct Delivered {
  uint32_t step = 0;
  at::Tensor tensor;      // what the event reads
  bool is_added = false;  // to the leaf, which is done then
};

/// Dims of stride 0 have one element: where the tensor's values are.
at::Tensor without_repeats(at::Tensor tensor);
/// Each element of it, but for those that a stride of 0 repeats, has memory of its own, which is as it reads.
bool can_be_copied_as_it_lies(const at::Tensor& tensor);
/// Memory for a copy of `tensor`, which lies like it.
at::Tensor like(const at::Tensor& tensor);

/// Below autograd.
class Delivery {
 public:
  /// `expected`: results, so that references to what is delivered stay.
  explicit Delivery(size_t expected);
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  /// A copy of it that is filled when run() has returned.
  at::Tensor copy(const at::Tensor& made);
  /// For the Accumulate event of `leaf`.
  void to_leaf(torch::autograd::AccumulateGrad& leaf, const at::Tensor& made, uint32_t step);
  void to_result(const at::Tensor& made, uint32_t step) { delivered_.push_back({step, copy(made)}); }

  /// Gives it all to the current stream, behind what makes it.
  void run();
  /// By step, in the order in which they were asked for.
  std::vector<Delivered>& delivered() { return delivered_; }

 private:
  void add_one_by_one_where_gradients_share_memory();

  struct Sum {
    at::Tensor grad, made;
    size_t delivered;                   // its place there
    std::unique_lock<std::mutex> lock;  // of the leaf
  };
  std::vector<at::Tensor> to_, from_;
  std::vector<Sum> sums_;
  std::vector<Delivered> delivered_;
};

}  // namespace hindcast::engine
