#pragma once

#include "codegen/cpu/kernel_call.h"
#include "codegen/fuse/body.h"
#include "codegen/kernel/foreach_sets.h"

namespace hindcast::codegen::cpu {

/// As Backend::run_foreach(). LibTorch's intra-op threads share the elements of all sets together: many small tensors cost one parallel
/// region.
void run_foreach(const Body& body, const CpuKernel& kernel, const ForeachSets& sets);

}  // namespace hindcast::codegen::cpu
