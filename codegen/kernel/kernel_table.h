#pragma once
// The kernels of a backend that this process has.

#include "codegen/kernel/kernel.h"
#include "codegen/store/kernel_key.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace hindcast::codegen {

/// The kernels that somebody holds, by a hash of their text. Those that nobody does any more leave when the table has doubled.
/// Many threads may use it; a backend whose process may fork sees to it that no thread is in here meanwhile.
class KernelTable {
 public:
  using Make = std::function<std::shared_ptr<const Kernel>()>;

  /// The kernel of `text`: the one that is known, else the one that `make` gives, whose exceptions leave here.
  std::shared_ptr<const Kernel> find_or_make(const std::string& text, const Make& make);
  /// At most twice the kernels that somebody holds, or 64.
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
