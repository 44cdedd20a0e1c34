#pragma once
// Gradients of leaves that kernels write: into buffers of their own, or added to the gradients that the leaves have. A kernel
// of large results does it itself, in the loop that makes them, where memory and arithmetic overlap.
//
// Which leaves get what, and whether that is safe, is the same on all devices and is decided here. The backend writes.

#include "codegen/kernel/launch_args.h"

#include <c10/util/FunctionRef.h>

#include <span>

namespace hindcast::codegen {

/// The body's kernel can write to leaves itself.
bool has_leaves(const Body& body);

struct ResultLayout {
  Ints sizes, strides;
  at::ScalarType type = at::ScalarType::Float;
};

class LeafWrites {
 public:
  /// Answers the requests, by Step::leaves; none: nothing is asked. What can not be added in place is left to the leaf.
  LeafWrites(const Group& group, const Step& step, const Slots& slots, std::span<LeafRequest> requests, MakeTensor make_new,
             c10::function_ref<ResultLayout(size_t store)> layout_of);

  bool empty() const { return writes_.empty(); }
  struct Write {
    size_t leaf;  // into Group::leaves
    size_t store;
    at::Tensor gradient;
    char* memory;  // of the gradient
    bool adds;     // to what is there; else: there is nothing yet
    at::ScalarType type() const { return gradient.scalar_type(); }
  };
  c10::ArrayRef<Write> writes() const { return writes_; }
  /// Nobody reads a result but leaves that add it: a kernel that does that itself needs no memory for it.
  bool is_only_added(size_t store) const;
  /// Of such a result, where one leaf reads it; else null.
  const Write* only_write_of(size_t store) const;

 private:
  c10::SmallVector<Write, 4> writes_;
  c10::SmallVector<size_t, 4> only_added_;
};

}  // namespace hindcast::codegen
