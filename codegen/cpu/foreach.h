#pragma once

#include "codegen/cpu/kernel_call.h"
#include "codegen/fuse/body.h"
#include "codegen/kernel/foreach_sets.h"

namespace hindcast::codegen::cpu {

/// The elements of all sets together are shared out by LibTorch's intra-op threads: many small tensors cost one hand-over.
void run_foreach(const Body& body, const CpuKernel& kernel, const ForeachSets& sets);

}  // namespace hindcast::codegen::cpu
