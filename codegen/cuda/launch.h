#pragma once
// Launches an entry point of a kernel.

#include "codegen/cuda/arguments.h"
#include "codegen/cuda/kernels.h"
#include "codegen/kernel/concats.h"
#include "codegen/kernel/leaf_requests.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace hindcast::codegen::cuda {

inline constexpr int64_t kAccess = 16;  // bytes of the widest access

/// The memory that a launch may access; recorded only if the machine wants_memory().
class TouchedMemory {
 public:
  void reads(const at::Tensor& tensor) { add(tensor, true); }
  void writes(const at::Tensor& tensor) { add(tensor, false); }
  void writes(const Concats& concats);
  void result(const at::Tensor& tensor, bool is_added) { add(tensor, is_added); }
  void leaves(const LeafWrites* leaves);
  void add(const void* begin, int64_t bytes, bool has_values) {
    if (is_wanted_) all_.push_back({begin, bytes, has_values});
  }
  c10::ArrayRef<Memory> all() const { return all_; }

 private:
  void add(const at::Tensor& tensor, bool has_values);

  const bool is_wanted_ = machine()->wants_memory();
  c10::SmallVector<Memory, 8> all_;
};

/// Whether the pointer is aligned for an access of 16 bytes.
bool is_aligned(const void* pointer);
/// Whether all leaf gradients that the kernel writes are aligned. `leaves`: nullptr if it writes none.
bool are_aligned(const Group& group, const LeafWrites* leaves);

void launch(const CudaKernel& kernel, const LaunchConfig& config, uint32_t shared_bytes, const Arguments& arguments, c10::Device device,
            const TouchedMemory& memory, bool is_of_sets = false);

}  // namespace hindcast::codegen::cuda
