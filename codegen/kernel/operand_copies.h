#pragma once
// Counts operands that a kernel's call has ATen copy before the launch, because the kernel cannot read their layout. Code that captures
// launches must know: the copy reads the operand, the kernel does not.

#include <cstdint>

namespace hindcast::codegen {

/// The copies made by this thread so far.
inline uint64_t& operand_copies() {
  static thread_local uint64_t count = 0;
  return count;
}

}  // namespace hindcast::codegen
