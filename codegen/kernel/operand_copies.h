#pragma once
// Operands that a kernel's call has ATen copy before it launches, since they do not lie as the kernel reads them. Who records launches must
// know: the copy reads the operand, and the kernel does not.

#include <cstdint>

namespace hindcast::codegen {

/// Made in this thread so far.
inline uint64_t& operand_copies() {
  static thread_local uint64_t count = 0;
  return count;
}

}  // namespace hindcast::codegen
