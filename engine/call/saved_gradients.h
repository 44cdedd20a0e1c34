#pragma once

#include "capture/backward/collected.h"
#include "capture/backward/trace.h"
#include "capture/graph/shared_memory.h"
#include "engine/plan/backward_plan.h"

#include <cstdint>
#include <vector>

namespace hindcast::engine {

// Finds backwards that read the memory of a `.grad` that they may also add to. Such a read must be ordered with the addition as in the
// stock engine, but kernels reorder steps that have no visible dependence. Memory is compared by address, since borrowed memory
// (from_blob, DLPack, NumPy) has a storage of its own.

/// How a backward reads memory of a `.grad` that it may add to.
enum class ReadsGradient : uint8_t {
  No,
  // A gradient that flows in shares it: kernels would read it too early or too late. Also if another thread holds a leaf's mutex, so that
  // its `.grad` cannot be read.
  FlowsIn,
  // A node has saved it. A plan checks the versions of saved tensors only before it begins, not at each node.
  IsSaved,
};
ReadsGradient reads_gradient(const BackwardPlan& plan, const capture::Collected& collected, const capture::Resume& resume);

/// True if no other tensor can reach its memory: it is the only holder of its storage, which LibTorch's allocator made.
bool is_held_once(const at::Tensor& tensor);

/// A set of storages' memory ranges, from the first byte to one past the last.
class Memory {
 public:
  void reserve(size_t count) { ranges_.reserve(count); }
  void add(const at::Tensor& tensor);
  bool empty() const { return ranges_.empty(); }
  /// True if it overlaps the tensor's storage.
  bool meets(const at::Tensor& tensor);

 private:
  std::vector<capture::MemoryRange> ranges_;  // sorted by begin if is_sorted_; `end` is then the largest so far
  bool is_sorted_ = true;
};

/// The memory of the `.grad`s that leaf tensors have at construction, to check the tensors that user code returns. A `.grad` that the
/// backward itself creates is not added to again.
class LeafGradients {
 public:
  LeafGradients(const BackwardPlan& plan, const capture::Collected& collected);
  bool may_be_memory_of(const at::Tensor& tensor) { return tensor.defined() && (!is_known_ || memory_.meets(tensor)); }

 private:
  Memory memory_;
  bool is_known_ = true;
};

}  // namespace hindcast::engine
