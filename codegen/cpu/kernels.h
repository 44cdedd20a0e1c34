#pragma once

#include "codegen/cpu/kernel_call.h"

#include <memory>
#include <string>

namespace hindcast::codegen {

struct KernelCounts {
  uint64_t compiled = 0;  // by Clang
  uint64_t loaded = 0;    // from the store on disk
  double compile_us = 0;
};

/// The kernel of a body: the one that this process has, else from the store on disk, else compiled. Equal bodies get one
/// kernel, which lives as long as somebody holds it. Safe from many threads. Null, with the reason, when there is no compiler
/// or it failed.
std::shared_ptr<const CpuKernel> cpu_kernel(const Body& body, std::string& why_not);

KernelCounts kernel_counts();
/// Entries of the process's table of kernels: at most twice the kernels that somebody holds, or 64.
size_t known_kernels();

}  // namespace hindcast::codegen
