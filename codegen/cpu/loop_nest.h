#pragma once
// Loops around a kernel that goes over one.

#include "codegen/kernel/launch_args.h"
#include "codegen/cpu/source.h"

namespace hindcast::codegen::cpu {

/// Calls `dense` for every innermost loop of the nest, shared out by threads. `widths`: the bytes from one element to the next that
/// the kernel goes by, 0 where it stands still.
///
/// Where a tensor's elements lie in another way, as those of a transposed one, tiles of it are first copied to where they lie side by
/// side: a line of memory is then read once, not once for each of its elements. Where a tensor has zeros around it, the kernel reads
/// them from memory that is always zero; a row in which they meet the tensor's own elements is copied. A short row that is broadcast, as the
/// bias of a layer, is copied as often as makes the kernel's loop long.
void run_nest(DenseKernel* dense, c10::ArrayRef<Loop> nest, const Pointers& pointers, c10::ArrayRef<int64_t> widths, const double* scalars,
              int64_t grain);

}  // namespace hindcast::codegen::cpu
