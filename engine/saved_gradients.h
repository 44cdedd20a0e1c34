#pragma once

#include "capture/graph/shared_memory.h"
#include "capture/backward/collected.h"
#include "capture/backward/trace.h"
#include "engine/backward_plan.h"

#include <cstdint>
#include <vector>

namespace hindcast::engine {

// Who reads memory of a `.grad` must read it before or after a leaf adds to it, as in the stock engine, and kernels change the order of
// what does not seem to depend on each other. Memory is compared by its addresses: what is lent (from_blob, DLPack, NumPy) has a storage
// of its own.

/// How a backward reads memory of a `.grad` that it may add to.
enum class ReadsGradient : uint8_t {
  No,
  // As a gradient: kernels would read it too early or too late. Also if another thread is busy with a leaf, whose `.grad` is not known then.
  FlowsIn,
  // By a node. A plan checks the versions of saved tensors only before it begins.
  IsSaved,
};
ReadsGradient reads_gradient(const BackwardPlan& plan, const capture::Collected& collected, const capture::Resume& resume);

/// Nobody else reaches its memory: LibTorch's allocator gave it to its storage, which no other tensor has.
bool is_held_once(const at::Tensor& tensor);

/// The memory of storages, from the first byte to behind the last.
class Memory {
 public:
  void reserve(size_t count) { ranges_.reserve(count); }
  void add(const at::Tensor& tensor);
  bool empty() const { return ranges_.empty(); }
  /// Whether it has bytes of the tensor's storage.
  bool meets(const at::Tensor& tensor);

 private:
  std::vector<capture::MemoryRange> ranges_;  // sorted by begin if is_sorted_; `end` is then the largest so far
  bool is_sorted_ = true;
};

/// The memory of all gradients that leaves have when it is made, for what user code returns: of those that a backward makes itself none is
/// added to again.
class LeafGradients {
 public:
  LeafGradients(const BackwardPlan& plan, const capture::Collected& collected);
  bool may_be_memory_of(const at::Tensor& tensor) { return tensor.defined() && (!is_known_ || memory_.meets(tensor)); }

 private:
  Memory memory_;
  bool is_known_ = true;
};

}  // namespace hindcast::engine
