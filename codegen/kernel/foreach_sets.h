#pragma once
// The operands of a pointwise kernel that runs on many sets of tensors, as LibTorch's foreach ops do.

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hindcast::codegen {

/// In each set all tensors are dense, with the same number of elements in the same order; broadcast loads have one element. A result may
/// have the memory of an operand, element by element. Memory that one set writes is not accessed by any other set.
struct ForeachSets {
  c10::Device device = c10::kCPU;      // of all tensors
  std::vector<char*> memory;           // set by set: those of Body::loads, then those of Body::stores
  std::vector<const double*> scalars;  // by set: those of the body
  std::vector<int64_t> numel;          // by set

  void clear() {
    memory.clear();
    scalars.clear();
    numel.clear();
  }
};

}  // namespace hindcast::codegen
