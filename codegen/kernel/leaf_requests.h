#pragma once
// Leaf gradients that kernels write: into new buffers, or added to the existing `.grad`. A kernel with large results does it in the loop
// that computes them, where memory traffic and arithmetic overlap.
//
// Which leaves get what, and whether that is safe, does not depend on the device and is decided here. The backend writes.

#include "codegen/kernel/launch_args.h"

#include <c10/util/FunctionRef.h>

#include <span>

namespace hindcast::codegen {

/// Whether the body's kernel can write to leaves itself.
bool has_leaves(const Body& body);

struct ResultLayout {
  Ints sizes, strides;
  at::ScalarType type = at::ScalarType::Float;
};

class LeafWrites {
 public:
  /// Answers the requests, which are indexed by Step::leaves and may be empty. Other additions are left to the Accumulate step.
  LeafWrites(const Group& group, const Step& step, const Slots& slots, std::span<LeafRequest> requests, MakeTensor make_new,
             c10::function_ref<ResultLayout(size_t store)> layout_of);

  bool empty() const { return writes_.empty(); }
  struct Write {
    size_t leaf;  // into Group::leaves
    size_t store;
    at::Tensor gradient;
    char* memory;  // of the gradient
    bool adds;     // true: adds to the existing gradient; false: fills a new one
    at::ScalarType type() const { return gradient.scalar_type(); }
  };
  c10::ArrayRef<Write> writes() const { return writes_; }
  /// Whether a result is only added to leaves: a kernel that does the additions itself needs no memory for the result.
  bool is_only_added(size_t store) const;
  /// The write of such a result if exactly one leaf reads it; otherwise nullptr.
  const Write* only_write_of(size_t store) const;

 private:
  c10::SmallVector<Write, 4> writes_;
  c10::SmallVector<size_t, 4> only_added_;
};

}  // namespace hindcast::codegen
