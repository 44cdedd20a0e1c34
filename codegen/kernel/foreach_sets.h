#pragma once
// What a kernel without rows is run on many times: sets of tensors, as LibTorch's foreach ops take them.

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hindcast::codegen {

/// In each set all tensors have the same number of elements, without gaps and in one order; loads that stand still have one. A result may
/// lie where an operand does, element by element. What one set writes no other set touches.
struct ForeachSets {
  c10::Device device = c10::kCPU;      // of all tensors
  std::vector<char*> memory;           // set by set: by Body::loads, then by Body::stores
  std::vector<const double*> scalars;  // by set: those of the body
  std::vector<int64_t> numel;          // by set

  void clear() {
    memory.clear();
    scalars.clear();
    numel.clear();
  }
};

}  // namespace hindcast::codegen
