#pragma once
// The kernels of one backend that are loaded in this process.

#include "codegen/kernel/kernel.h"
#include "codegen/store/kernel_key.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace hindcast::codegen {

/// Weak references to kernels, by a hash of their text. Expired entries are removed when the table has doubled in size.
/// Thread-safe; a backend must ensure that no thread is in here during a fork.
class KernelTable {
 public:
  using Make = std::function<std::shared_ptr<const Kernel>()>;

  /// The kernel of `text`: the one in the table, otherwise the result of `make`, whose exceptions pass through.
  std::shared_ptr<const Kernel> find_or_make(const std::string& text, const Make& make);
  /// Number of entries, expired ones included: at most 64, or twice the number of live kernels.
  size_t size();

 private:
  static constexpr size_t kSmallest = 64;
  struct HashOfKey {
    size_t operator()(const store::KernelKey& key) const { return key.low; }
  };
  void sweep();

  std::mutex mutex_;
  std::unordered_map<store::KernelKey, std::weak_ptr<const Kernel>, HashOfKey> kernels_;
  size_t sweep_at_ = kSmallest;
};

}  // namespace hindcast::codegen
