#pragma once
// Finds or compiles the CPU's kernels, by Clang.

#include "codegen/cpu/kernel_call.h"

#include <memory>
#include <string>

namespace hindcast::codegen::cpu {

/// As Backend::kernel().
std::shared_ptr<const CpuKernel> kernel_of(const Body& body, std::string& why_not);

/// KernelTable::size() of the process's table of CPU kernels.
size_t known_kernels();

}  // namespace hindcast::codegen::cpu
