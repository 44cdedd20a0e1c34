#pragma once
// Gradients of leaves (codegen/kernel/leaf_requests.h), written on the CPU: by a kernel, or behind it.

#include "codegen/kernel/leaf_requests.h"

#include <vector>

namespace hindcast::codegen::cpu {

/// A result to one of its leaves, where no kernel has done it.
void write_to_leaf(const LeafWrites::Write& write, const at::Tensor& result);

/// The pointers to leaves that a kernel takes: for each leaf that the body has, of its sum and of the term that is added. Where
/// nobody wants one, null: the kernel writes to elements that nobody reads. Where there is nothing to add to, zeros.
class LeafPointers {
 public:
  /// Blocks and segments have at most `length` elements.
  LeafPointers(const Group& group, const LeafWrites& leaves, int64_t length);
  struct Pointer {
    char* memory;
    size_t store;
    bool is_tensor;  // else the same elements for every block or segment
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

}  // namespace hindcast::codegen::cpu
