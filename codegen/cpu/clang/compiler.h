#pragma once
// The compiler for CPU kernels: source text to object bytes, object bytes to functions that can be called.
//
// Clang lies in a shared object of its own, libhindcast_clang.so, which is opened by the first get(): who compiles nothing
// pays nothing, and hindcast works without it, only slower. It is looked for beside the object that holds this code, then
// in the lib folder beside that one's folder (a program of the build tree), then where the dynamic linker looks. The
// environment's HINDCAST_CLANG_LIBRARY, if not empty, names the one place to look at instead.
//
// All functions may be called on any thread. A child of fork() may compile and load, see base/fork_gate.h. A thread may be
// compiling when the process exits: nothing that it uses is destroyed.

#include "base/check.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

extern "C" typedef struct HindcastClangTable HindcastClangTable;

namespace hindcast::codegen::cpu {

/// A file that a kernel's source may include by its name.
struct SourceFile {
  std::string_view name;
  std::string_view text;
};

/// Freestanding C++20; functions to be called are `extern "C"`. Floating point is strict: no contraction, no reordering.
struct KernelSource {
  std::string_view text;
  std::span<const SourceFile> files = {};
  uint32_t optimisation = 3;
};

/// Clang refused a source, which is our bug or its own, but the caller has another way, as with all that is Unsupported.
/// The text holds the diagnostics and the source with its lines numbered.
class CompileError : public Unsupported {
 public:
  CompileError(const std::string& diagnostics, std::string_view source);
  const std::string& diagnostics() const { return diagnostics_; }

 private:
  std::string diagnostics_;
};

/// Functions in memory. They are gone with the last holder, who sees to it that nobody is in one.
class LoadedKernel {
 public:
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  /// The address of an `extern "C"` function; null when there is none of that name.
  void* symbol(const std::string& name) const;

 private:
  friend class ClangCompiler;
  LoadedKernel(const HindcastClangTable& table, void* loaded) : table_(table), loaded_(loaded) {}

  const HindcastClangTable& table_;
  void* loaded_;
};

class ClangCompiler {
 public:
  /// The process's one. Null when there is none; then `why_not` is a sentence that says what failed and what to do.
  static std::shared_ptr<ClangCompiler> get(std::string* why_not);
  /// The same from the first of `paths` that can be opened, for tests.
  static std::shared_ptr<ClangCompiler> open(std::span<const std::string> paths, std::string* why_not);

  /// All besides a source and its options that the object's bytes depend on; part of a stored kernel's key.
  const std::string& identity() const { return identity_; }

  /// An object file's bytes. Throws CompileError.
  std::string compile(const KernelSource& source) const;

  /// `object` is what compile() gave, on this machine, in this process or another. Throws Unsupported for bytes that are no
  /// such object, and for one that calls what neither it nor libm has.
  std::shared_ptr<const LoadedKernel> load(std::string_view object) const;

 private:
  explicit ClangCompiler(const HindcastClangTable& table);

  const HindcastClangTable& table_;
  std::string identity_;
};

}  // namespace hindcast::codegen::cpu
