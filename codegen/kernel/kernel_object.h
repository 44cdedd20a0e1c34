#pragma once
// The machine code for a source text: read from the store on disk, otherwise compiled and written to the store.

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
/// The counts of all backends together.
KernelCounts kernel_counts();

/// Says, for the log `kernel_code`, what this thread's kernels are for while the object lives. Empty: unknown.
class AskedBy {
 public:
  explicit AskedBy(std::string sentence);
  ~AskedBy();
  AskedBy(const AskedBy&) = delete;
  AskedBy& operator=(const AskedBy&) = delete;

  /// This thread's current sentence.
  static std::string now();

 private:
  const std::string sentence_;
  const AskedBy* const outer_;
};

/// The compiler of a backend.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// Everything that an object's bytes depend on, besides the text and the device library.
  virtual std::string_view identity() const = 0;
  /// Returns an object's bytes. Throws Unsupported.
  virtual std::string compile(std::string_view text) const = 0;
};

/// Loads the result of compile(), of this process or another. Throws if the bytes are not such an object.
using LoadObject = std::function<void(std::string_view object)>;

/// Passes the object of `text`, the text of a kernel or a part of it, to `load`: the stored one, or a newly compiled one if none is stored
/// or `load` rejects it. `kernel`: the whole text, by which logs and traces identify the kernel. Throws as the compiler and `load` do.
void load_object(const KernelCompiler& compiler, const std::string& text, const std::string& kernel, const LoadObject& load);

/// The stored result of `compiler` for `text`, which is not a kernel, or a new one. Neither counted nor logged. Throws as the compiler
/// does.
std::string stored_or_compiled(const KernelCompiler& compiler, const std::string& text);

}  // namespace hindcast::codegen
