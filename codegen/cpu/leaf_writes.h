#pragma once
// Writes leaf gradients (codegen/kernel/leaf_requests.h) on the CPU: in a kernel, or after it.

#include "codegen/kernel/leaf_requests.h"

#include <vector>

namespace hindcast::codegen::cpu {

/// Writes a result to one of its leaves, if the kernel has not done it.
void write_to_leaf(const LeafWrites::Write& write, const at::Tensor& result);

/// The pointers to leaves that a kernel takes: for each leaf of the body, to its sum and to the term that is added. A sum that is not
/// wanted goes to scratch elements that are not read; a missing term is zeros.
class LeafPointers {
 public:
  /// Blocks and segments have at most `length` elements.
  LeafPointers(const Group& group, const LeafWrites& leaves, int64_t length);
  struct Pointer {
    char* memory;
    size_t store;
    bool is_tensor;  // false: the same scratch elements or zeros for every block or segment
    bool is_new;     // a tensor that is only written, not read
  };
  c10::ArrayRef<Pointer> all() const { return pointers_; }

 private:
  char* zeros(at::ScalarType type, int64_t length);
  c10::SmallVector<Pointer, 8> pointers_;
  std::vector<std::vector<char>> own_zeros_;
};

/// to[i] += from[i] for floating-point types; complex numbers are pairs of these.
void add_elements(at::ScalarType type, char* to, const char* from, int64_t count);

}  // namespace hindcast::codegen::cpu
