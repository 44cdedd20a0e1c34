#pragma once
// The compiler for CPU kernels: compiles source text to object bytes, and loads object bytes as callable functions.
//
// Clang is in a separate shared object, libhindcast_clang.so, which is opened by the first get(): programs that compile no
// kernels do not load it, and hindcast works without it, only slower. It is looked for beside the object that holds this code,
// then in the lib folder beside that object's folder (for programs of the build tree), then by the dynamic linker. If the
// environment variable HINDCAST_CLANG_LIBRARY is not empty, only the place it names is tried instead.
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

/// Freestanding C++20; functions to be called must be `extern "C"`. Floating point is strict: no contraction, no reordering.
struct KernelSource {
  std::string_view text;
  std::span<const SourceFile> files = {};
  uint32_t optimisation = 3;
  /// Includes that `text` may have, and the result of precompile() for them with the same files and options, so that a compile does not
  /// parse them.
  std::string_view prelude = {};
  std::string_view precompiled = {};
};

/// Clang rejected a source. This is a bug of hindcast or Clang, but the caller can fall back, as for any Unsupported. The message has the
/// diagnostics and the source with numbered lines.
class CompileError : public Unsupported {
 public:
  CompileError(const std::string& diagnostics, std::string_view source);
  const std::string& diagnostics() const { return diagnostics_; }

 private:
  std::string diagnostics_;
};

/// Loaded functions. The last reference unloads them; the caller must ensure that no thread is running one at that time.
class LoadedKernel {
 public:
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  /// The address of an `extern "C"` function; nullptr if no function has that name.
  void* symbol(const std::string& name) const;

 private:
  friend class ClangCompiler;
  LoadedKernel(const HindcastClangTable& table, void* loaded) : table_(table), loaded_(loaded) {}

  const HindcastClangTable& table_;
  void* loaded_;
};

class ClangCompiler {
 public:
  /// The process's compiler. nullptr if it cannot be loaded; `why_not` is then a sentence that says what failed and what to do.
  static std::shared_ptr<ClangCompiler> get(std::string* why_not);
  /// For tests: a compiler from the first of `paths` that can be opened.
  static std::shared_ptr<ClangCompiler> open(std::span<const std::string> paths, std::string* why_not);

  /// Everything that an object's bytes depend on besides its source and options; part of a stored kernel's key.
  const std::string& identity() const { return identity_; }

  /// Returns the bytes of an object file. Throws CompileError.
  std::string compile(const KernelSource& source) const;

  /// Returns the bytes of the prelude as a precompiled header. Throws CompileError.
  std::string precompile(const KernelSource& source) const;

  /// `object`: a result of compile() on this machine, of this process or another. Throws Unsupported if the bytes are not such an object,
  /// or if it calls a function that neither it nor libm defines.
  std::shared_ptr<const LoadedKernel> load(std::string_view object) const;

 private:
  explicit ClangCompiler(const HindcastClangTable& table);

  const HindcastClangTable& table_;
  std::string identity_;
};

}  // namespace hindcast::codegen::cpu
