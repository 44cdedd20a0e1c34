#include "codegen/kernel/kernel_table.h"

#include <algorithm>

namespace hindcast::codegen {

std::shared_ptr<const Kernel> KernelTable::find_or_make(const std::string& text, const Make& make) {
  const store::KernelKey key = store::key_of({text});
  // The lock is held while compiling, so that two threads that want the same kernel compile it once.
  const std::lock_guard lock(mutex_);
  if (const auto known = kernels_.find(key); known != kernels_.end()) {
    if (auto kernel = known->second.lock()) return kernel;
  }
  auto kernel = make();
  if (kernels_.size() >= sweep_at_) sweep();
  kernels_[key] = kernel;
  return kernel;
}

size_t KernelTable::size() {
  const std::lock_guard lock(mutex_);
  return kernels_.size();
}

void KernelTable::sweep() {
  std::erase_if(kernels_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = std::max(kSmallest, 2 * kernels_.size());
}

}  // namespace hindcast::codegen
