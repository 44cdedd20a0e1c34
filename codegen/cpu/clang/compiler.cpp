#include "codegen/cpu/clang/compiler.h"

#include "base/fork.h"
#include "base/fork_gate.h"
#include "base/format.h"
#include "codegen/cpu/clang/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

constexpr const char* kLibrary = "libhindcast_clang.so";
constexpr const char* kOverride = "HINDCAST_CLANG_LIBRARY";
constexpr std::string_view kHowToGet =
    "It is built with hindcast where Clang 19 is installed (apt-get install libclang-19-dev llvm-19-dev) and lies beside libhindcast.so";

std::vector<std::string> candidate_paths() {
  const char* const given = secure_getenv(kOverride);  // nullptr in a program that runs with more rights than its caller (setuid)
  if (given != nullptr && *given != '\0') return {given};
  std::vector<std::string> paths;
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&candidate_paths), &own) != 0 && own.dli_fname != nullptr) {
    // Resolves symbolic links: a link to libhindcast.so may be in a folder without the plug-in.
    std::error_code error;
    const auto file = std::filesystem::canonical(own.dli_fname, error);
    if (!error) paths = {file.parent_path() / kLibrary, file.parent_path().parent_path() / "lib" / kLibrary};
  }
  paths.push_back(kLibrary);
  return paths;
}

std::string numbered(std::string_view text) {
  std::string lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string digits = std::to_string(number);
    lines += std::string(digits.size() < 4 ? 4 - digits.size() : 0, ' ') + digits + "  ";
    lines += text.substr(0, end);
    lines += '\n';
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

HindcastClangText as_text(std::string_view text) { return {text.data(), text.size()}; }

HindcastClangSink into(std::string& text) {
  return {[](void* context, const char* data, size_t size) { static_cast<std::string*>(context)->assign(data, size); }, &text};
}

std::string run(decltype(HindcastClangTable::compile) function, const KernelSource& source) {
  std::vector<HindcastClangFile> files;
  for (const SourceFile& file : source.files) files.push_back({as_text(file.name), as_text(file.text)});
  const HindcastClangSource plain = {as_text(source.text),       files.data(), files.size(), source.optimisation, as_text(source.prelude),
                                     as_text(source.precompiled)};
  std::string result, problem;
  const base::InsideCompiler inside;
  if (function(&plain, into(result), into(problem)) == 0) throw CompileError(problem, source.text.empty() ? source.prelude : source.text);
  return result;
}

}  // namespace

CompileError::CompileError(const std::string& diagnostics, std::string_view source)
    : Unsupported(base::format("Clang refused a kernel:\n{}\nThe source:\n{}", diagnostics, numbered(source))), diagnostics_(diagnostics) {}

LoadedKernel::~LoadedKernel() {
  const base::InsideCompiler inside;
  table_.unload(loaded_);
}

void* LoadedKernel::symbol(const std::string& name) const { return table_.find(loaded_, name.c_str()); }

ClangCompiler::ClangCompiler(const HindcastClangTable& table) : table_(table), identity_(table.identity()) {}

std::shared_ptr<ClangCompiler> ClangCompiler::get(std::string* why_not) {
  struct Found {
    std::shared_ptr<ClangCompiler> compiler;
    std::string why_not;
  };
  // Never destroyed, since kernels are unloaded by objects that live as long as the process, after the destructors of this file.
  static constinit base::MadeOnce<const Found> made;
  const Found& found = made.by([] {
    Found result;
    result.compiler = open(candidate_paths(), &result.why_not);
    return result;
  });
  if (!found.compiler && why_not != nullptr) *why_not = found.why_not;
  return found.compiler;
}

std::shared_ptr<ClangCompiler> ClangCompiler::open(std::span<const std::string> paths, std::string* why_not) {
  const auto refuse = [&](std::string sentence) {
    if (why_not != nullptr) *why_not = std::move(sentence);
    return nullptr;
  };
  const base::InsideCompiler inside;
  void* library = nullptr;
  std::string errors;
  for (const std::string& path : paths) {
    // Its symbols are local. It is never unloaded, since threads may be in it until the process ends.
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) break;
    const char* const error = dlerror();
    errors += base::format("{}{}", errors.empty() ? "" : "; ", error == nullptr ? "unknown error" : error);
  }
  if (library == nullptr) {
    return refuse(base::format("The compiler for CPU kernels could not be loaded ({}). {}; set {} to its path if it lies elsewhere.",
                               errors, kHowToGet, kOverride));
  }
  const auto entry = reinterpret_cast<HindcastClangEntry>(dlsym(library, HINDCAST_CLANG_ENTRY));
  if (entry == nullptr) {
    return refuse(base::format("The compiler for CPU kernels was not found: the library opened as {} has no {}. {}.", paths.back(),
                               HINDCAST_CLANG_ENTRY, kHowToGet));
  }
  const HindcastClangTable* const table = entry();
  if (table->version != kHindcastClangVersion) {
    return refuse(
        base::format("The compiler for CPU kernels, {}, has version {} of its interface, expected {}. {}; install both from one build.",
                     kLibrary, table->version, uint32_t{kHindcastClangVersion}, kHowToGet));
  }
  return std::shared_ptr<ClangCompiler>(new ClangCompiler(*table));
}

std::string ClangCompiler::compile(const KernelSource& source) const { return run(table_.compile, source); }

std::string ClangCompiler::precompile(const KernelSource& source) const { return run(table_.precompile, source); }

std::shared_ptr<const LoadedKernel> ClangCompiler::load(std::string_view object) const {
  void* loaded = nullptr;
  std::string problem;
  const base::InsideCompiler inside;
  if (table_.load(as_text(object), &loaded, into(problem)) == 0)
    HC_UNSUPPORTED("A compiled kernel of {} bytes could not be loaded: {}", object.size(), problem);
  return std::shared_ptr<const LoadedKernel>(new LoadedKernel(table_, loaded));
}

}  // namespace hindcast::codegen::cpu
