#pragma once
// The kernels of a backend that this process has, and behind them the store on disk.

#include "codegen/fuse/body.h"
#include "codegen/kernel/kernel.h"
#include "codegen/store/kernel_key.h"

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hindcast::codegen {

struct KernelCounts {
  uint64_t compiled = 0;
  uint64_t loaded = 0;  // from the store on disk
  double compile_us = 0;
};
/// Of all backends.
KernelCounts kernel_counts();

/// What a backend makes kernels with.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// All besides the text and the device library that an object's bytes depend on.
  virtual std::string_view identity() const = 0;
  /// An object's bytes. Throws what is Unsupported.
  virtual std::string compile(std::string_view text) const = 0;
  /// `object`: what compile() gave, in this process or another. Throws for bytes that are no such object.
  virtual std::shared_ptr<const Kernel> load(std::string_view object, const Body& body) const = 0;
};

/// The kernels that somebody holds, by a hash of their text. Those that nobody does any more leave when the table has doubled.
/// Many threads may use it; a backend whose process may fork sees to it that no thread is in here meanwhile.
class KernelTable {
 public:
  /// The kernel of `text`, which is the body's: the one that is known, else from the store on disk, else compiled. Throws as the
  /// compiler does.
  std::shared_ptr<const Kernel> find_or_make(const KernelCompiler& compiler, const std::string& text, const Body& body);
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
