#pragma once
// Machine code of texts: from the store on disk, else compiled now and kept there.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace hindcast::codegen {

struct KernelCounts {
  uint64_t compiled = 0;
  uint64_t loaded = 0;  // from the store on disk
  double compile_us = 0;
};
/// Objects of all backends.
KernelCounts kernel_counts();

/// While it lives, this thread asks for kernels for whom `sentence` says, as the log `kernel_code` does. Empty: nobody says.
class AskedBy {
 public:
  explicit AskedBy(std::string sentence);
  ~AskedBy();
  AskedBy(const AskedBy&) = delete;
  AskedBy& operator=(const AskedBy&) = delete;

  /// Of this thread.
  static std::string now();

 private:
  const std::string sentence_;
  const AskedBy* const outer_;
};

/// What a backend compiles with.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// All besides the text and the device library that an object's bytes depend on.
  virtual std::string_view identity() const = 0;
  /// An object's bytes. Throws what is Unsupported.
  virtual std::string compile(std::string_view text) const = 0;
};

/// Takes what compile() gave, in this process or another. Throws for bytes that are no such object.
using LoadObject = std::function<void(std::string_view object)>;

/// Gives `load` the object of `text`, which is the text of a kernel or a part of it: that of the store, and if `load` does not take it, or
/// there is none, a compiled one. `kernel`: the whole text, by which records name the kernel. Throws as the compiler and `load` do.
void load_object(const KernelCompiler& compiler, const std::string& text, const std::string& kernel, const LoadObject& load);

}  // namespace hindcast::codegen
