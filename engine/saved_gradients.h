#pragma once

#include "capture/collected.h"
#include "capture/trace.h"
#include "codegen/plan.h"

#include <vector>

namespace hindcast::engine {

// Who reads memory of a `.grad` must read it before or after a leaf adds to it, as in the stock engine, and kernels change the order of
// what does not seem to depend on each other.

/// A node has saved memory of a `.grad` that this backward may add to, or it flows in as a gradient.
bool saves_a_gradient(const codegen::Plan& plan, const capture::Collected& collected, const capture::Resume& resume);

/// The memory of all gradients that leaves have when it is made, for what user code returns: of those that a backward makes itself none is
/// added to again.
class LeafGradients {
 public:
  LeafGradients(const codegen::Plan& plan, const capture::Collected& collected);
  bool may_be_memory_of(const at::Tensor& tensor) const;

 private:
  std::vector<const c10::StorageImpl*> memory_;  // sorted
  bool is_known_ = true;
};

}  // namespace hindcast::engine
