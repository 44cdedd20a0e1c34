#pragma once
// Runs a one-loop kernel in a loop nest.

#include "codegen/kernel/launch_args.h"
#include "codegen/cpu/source.h"

namespace hindcast::codegen::cpu {

/// Calls `dense` for every innermost loop of the nest, in parallel. `widths`: by pointer, the stride in bytes that the kernel assumes; 0
/// for broadcast operands.
///
/// If a tensor has another stride, for example because it is transposed, tiles of it are first copied to contiguous memory, so that each
/// cache line is read once and not once per element. If a tensor is padded, the kernel reads the zeros from memory that is always zero; a
/// row with both zeros and elements of the tensor is copied. A short row that is broadcast, such as a bias, is repeated to make the
/// kernel's loop long; so is one number for each short row.
void run_nest(DenseKernel* dense, c10::ArrayRef<Loop> nest, const Pointers& pointers, c10::ArrayRef<int64_t> widths, const double* scalars,
              int64_t grain);

}  // namespace hindcast::codegen::cpu
