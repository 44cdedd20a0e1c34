#pragma once
// Kernels for CUDA: the machine's compiler makes them, NVRTC or that of an emulator.

#include "codegen/cuda/machine.h"
#include "codegen/cuda/schedule.h"
#include "codegen/fuse/body.h"
#include "codegen/kernel/kernel.h"

#include <array>
#include <memory>
#include <string>

namespace hindcast::codegen::cuda {

/// The machine code of one body. Of its text's entry points those are null that the body does not have.
struct CudaKernel final : Kernel {
  std::array<void*, kEntries> functions = {};
  std::shared_ptr<const Module> module;
  size_t bytes = 0;  // of the object that it was loaded from

  void* function(Entry entry) const { return functions[static_cast<size_t>(entry)]; }
  size_t footprint_of_one(long holders) const override;
};

/// As Backend::kernel().
std::shared_ptr<const CudaKernel> kernel_of(const Body& body, std::string& why_not);

/// Of a body's text.
Shape shape_of(const Body& body);

}  // namespace hindcast::codegen::cuda
