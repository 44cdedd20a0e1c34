#pragma once
// Gradients of leaves that kernels write: into buffers of their own, or added to the gradients that the leaves have. A kernel
// of large results does it itself, in the loop that makes them, where memory and arithmetic overlap.

#include "codegen/kernel/launch_args.h"

#include <c10/util/FunctionRef.h>

namespace hindcast::codegen {

struct ResultLayout {
  Ints sizes, strides;
  at::ScalarType type = at::ScalarType::Float;
};

class LeafWrites {
 public:
  /// Answers what Step::leaves ask for. What can not be added in place is left to the leaf, its slot undefined.
  LeafWrites(const Group& group, const Step& step, Slots& slots, c10::function_ref<ResultLayout(size_t store)> layout_of);

  bool empty() const { return writes_.empty(); }
  struct Write {
    size_t leaf;  // into Group::leaves
    size_t store;
    char* memory;
    at::ScalarType type;
    bool adds;  // to what is there; else: there is nothing yet
  };
  c10::ArrayRef<Write> writes() const { return writes_; }
  /// Nobody reads a result but leaves that add it: a kernel that does that itself needs no memory for it.
  bool is_only_added(size_t store) const;
  /// A result to all its leaves, where no kernel has done it.
  void write(size_t store, const at::Tensor& result) const;

 private:
  c10::SmallVector<Write, 4> writes_;
  c10::SmallVector<at::Tensor, 4> kept_;  // whose memory is added to
  c10::SmallVector<size_t, 4> only_added_;
};

/// The pointers to leaves that a kernel takes: for each leaf that the body has, of its sum and of the term that is added. Where
/// nobody wants one, null: the kernel writes to elements that nobody reads. Where there is nothing to add to, zeros.
class LeafPointers {
 public:
  /// Blocks and runs have at most `length` elements.
  LeafPointers(const Group& group, const LeafWrites& leaves, int64_t length);
  struct Pointer {
    char* memory;
    size_t store;
    bool is_tensor;  // else the same elements for every block or run
    bool is_new;     // a tensor that is only written
  };
  c10::ArrayRef<Pointer> all() const { return pointers_; }

 private:
  char* zeros(at::ScalarType type, int64_t length);
  c10::SmallVector<Pointer, 8> pointers_;
  std::vector<std::vector<char>> own_zeros_;
};

/// to[i] += from[i], for types of floating point; of complex numbers part by part.
void add_elements(at::ScalarType type, char* to, const char* from, int64_t count);

}  // namespace hindcast::codegen
