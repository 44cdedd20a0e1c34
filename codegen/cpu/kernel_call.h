#pragma once

#include "codegen/cpu/source.h"
#include "codegen/fuse/group.h"
#include "codegen/kernel/kernel.h"
#include "codegen/plan/plan.h"

#include <algorithm>
#include <memory>

namespace hindcast::codegen::cpu {

/// The machine code of one body. A row kernel has `rows`, others `dense`. The functions live as long as `code`.
struct CpuKernel final : Kernel {
  DenseKernel* dense = nullptr;
  LeavesKernel* leaves = nullptr;           // if the body has_leaves()
  ProductKernel* product = nullptr;         // if the body has a product
  std::shared_ptr<const CpuKernel> blocks;  // the kernel of shared product blocks that `product` calls
  const void* product_blocks = nullptr;     // a ProductBlocks, if this kernel is such blocks or calls them
  RowsKernel* rows = nullptr;
  RowsKernel* rows_to_leaves = nullptr;  // if the body has_leaves()
  std::shared_ptr<const void> code;
  size_t bytes = 0;  // of the object that it was loaded from

  size_t footprint_of_one(long holders) const override {
    constexpr size_t kPages = 3 * 4096;  // code, constants and tables each begin a new page
    return (bytes + kPages) / static_cast<size_t>(std::max(holders, 1L));
  }
};

/// Runs a group's kernel: makes its results and iterates over the domain on LibTorch's intra-op threads.
std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CpuKernel> kernel);

}  // namespace hindcast::codegen::cpu
