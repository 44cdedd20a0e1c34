// libhindcast_clang.so: Clang and LLVM's in-process linker behind the C table of plugin.h. Only the files plugin*.cpp see LLVM.
//
//   source -> CompilerInstance + EmitObjAction -> object bytes          (what the kernel store keeps)
//   prelude -> CompilerInstance + PCHGenerator -> a precompiled header  (so that a compile does not parse the device library)
//   object bytes -> JITLink -> pages of code in this process, addresses by name
//
// JITLink, the linker below ORC's layers, is used without an ExecutionSession: kernels do not refer to each other, so they need
// neither its symbol tables nor its global lock, and loads are independent, on any thread.
//
// LLVM and Clang are linked statically, with hidden symbols. Compared with their shared libraries, the first dlopen takes 13 ms
// instead of 32 (disk cache warm), compiles and loads take the same time, the link takes 6 s, and the file has 80 MB. The reason
// is that the copy is private: it is never mixed with an LLVM of the host program (a driver's, another plug-in's), the fatal error
// handler is ours alone, and destructors of its global objects can be suppressed, see below: with the shared libraries, a process
// that exits while a thread compiles aborts.

#include "codegen/cpu/clang/plugin.h"

#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <clang/Serialization/ASTWriter.h>
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A thread may be compiling when the process exits. If LLVM's global objects were destroyed then, it would crash; so
// nothing that is linked into this library registers a destructor. The library is never unloaded either.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }

// Distributions configure LLVM with extensions (usually Polly), which Clang asks for their passes and which are in separate
// packages. None of our flags enables one, so they are replaced by stubs here.
#define HANDLE_EXTENSION(name)                                                  \
  llvm::PassPluginLibraryInfo get##name##PluginInfo() {                         \
    return {LLVM_PLUGIN_API_VERSION, #name, "none", [](llvm::PassBuilder&) {}}; \
  }
#include <llvm/Support/Extension.def>

namespace {

namespace jitlink = llvm::jitlink;
namespace orc = llvm::orc;

constexpr const char* kMainFile = "/kernel.cpp";
constexpr const char* kPreludeFile = "/prelude.h";
constexpr const char* kPchFile = "/prelude.pch";

void write_to(const HindcastClangSink& sink, llvm::StringRef text) { sink.write(sink.context, text.data(), text.size()); }

llvm::StringRef view(const HindcastClangText& text) { return {text.data, text.size}; }

// ---------------------------------------------------------------------------------------------------------------------
// The target

struct Target {
  std::string triple;
  std::string cpu;
  std::vector<std::string> features;  // "+avx2", "-avx512f", sorted
};

/// This machine. Features are named one by one: a virtual machine may hide some that its CPU's name promises.
Target host_target() {
  Target target{llvm::sys::getProcessTriple(), llvm::sys::getHostCPUName().str(), {}};
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    target.features.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(target.features.begin(), target.features.end());
  return target;
}

/// Flags of clang -cc1, which has no driver's defaults: no headers, no libraries, no -fmath-errno.
std::vector<std::string> flags_for(const Target& target) {
  std::vector<std::string> flags = {
      "-triple",
      target.triple,
      "-target-cpu",
      target.cpu,
      "-tune-cpu",
      target.cpu,
      "-x",
      "c++",
      "-std=c++20",
      // Sources are self-contained: no system headers, and no C library calls but explicit ones.
      "-ffreestanding",
      "-nostdsysteminc",
      "-nobuiltininc",
      "-nostdinc++",
      // Kernels do not throw. Code without unwind tables need not be registered with the unwinder, which would slow down
      // every exception of the process.
      "-fno-rtti",
      "-funwind-tables=0",
      "-mframe-pointer=none",
      // Code may be loaded far from libm.
      "-mrelocation-model",
      "pic",
      "-pic-level",
      "2",
      // Off by default for -cc1, at any level.
      "-vectorize-loops",
      "-vectorize-slp",
      // a * b + c rounds twice, as in LibTorch: a kernel must compute the same bits as the ops that it replaces.
      "-ffp-contract=off",
      // The exception flags are not read (-fno-trapping-math): a masked lane may compute what the loop would not.
      "-ffp-exception-behavior=ignore",
      // What headers instantiate is instantiated once, in the precompiled header.
      "-fpch-instantiate-templates",
      // No warnings, since the sources are generated.
      "-w",
  };
  for (const std::string& feature : target.features) {
    flags.push_back("-target-feature");
    flags.push_back(feature);
  }
  // By default, LLVM uses half of AVX-512's width on Intel's CPUs, because older ones lower their clock for the full width. CPUs with this
  // feature, from Ice Lake on, hardly do, and their kernels are up to a third faster with the full width.
  if (std::find(target.features.begin(), target.features.end(), "+avx512vbmi2") != target.features.end())
    flags.push_back("-mprefer-vector-width=512");
  return flags;
}

// ---------------------------------------------------------------------------------------------------------------------
// LLVM's fatal errors

// If a back end cannot translate a source, it calls report_fatal_error, which would abort the process; the handler must not
// return. So it jumps out of the compile. Everything on the stack is leaked, possibly including a lock: so no compile follows.
struct Escape {
  jmp_buf where;
  char reason[512];
};
thread_local Escape* escape = nullptr;
std::atomic<bool> broken = false;

void on_fatal_error(void*, const char* reason, bool) {
  if (escape == nullptr) return;  // not within a compile; LLVM then aborts
  broken = true;
  snprintf(escape->reason, sizeof(escape->reason), "%s", reason);
  longjmp(escape->where, 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// One-time setup

struct Compiler {
  std::vector<std::string> flags;
  std::string identity;
  std::unique_ptr<jitlink::JITLinkMemoryManager> memory;
  void* libm = nullptr;
  void* libc = nullptr;

  Compiler() {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    llvm::install_fatal_error_handler(on_fatal_error);
    flags = flags_for(host_target());
    identity = clang::getClangFullVersion();
    for (const std::string& flag : flags) identity += " " + flag;
    auto manager = jitlink::InProcessMemoryManager::Create();
    if (manager)
      memory = std::move(*manager);
    else
      llvm::consumeError(manager.takeError());  // reported by load()
    libm = dlopen("libm.so.6", RTLD_LAZY | RTLD_LOCAL);
    libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_LOCAL);
  }
};

Compiler& compiler() {
  static auto* const instance = new Compiler;
  return *instance;
}

// ---------------------------------------------------------------------------------------------------------------------
// Compile

llvm::IntrusiveRefCntPtr<llvm::vfs::FileSystem> files_of(const HindcastClangSource& source) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->setCurrentWorkingDirectory("/");
  const auto add = [&](const llvm::Twine& name, const HindcastClangText& text) {
    files->addFile(name, 0, llvm::MemoryBuffer::getMemBufferCopy(view(text), name));
  };
  add(kMainFile, source.text);
  add(kPreludeFile, source.prelude);
  add(kPchFile, source.precompiled);
  for (size_t i = 0; i < source.file_count; ++i) add("/" + view(source.files[i].name), source.files[i].text);
  return files;
}

std::vector<std::string> flags_of(const HindcastClangSource& source, const char* file) {
  std::vector<std::string> flags = compiler().flags;
  flags.push_back("-O" + std::to_string(std::min(source.optimisation, 3U)));
  flags.insert(flags.end(), {"-I", "/", "-emit-obj", "-main-file-name", "kernel.cpp", file});
  return flags;
}

/// Runs a front-end action on `file`. `uses_pch`: with the precompiled header. `output`: where the action writes, or null.
bool run_action(const HindcastClangSource& source, const char* file, bool uses_pch, clang::FrontendAction& action, std::string& diagnostics,
                std::unique_ptr<llvm::raw_pwrite_stream> output) {
  clang::CompilerInstance instance;
  llvm::raw_string_ostream text(diagnostics);
  llvm::raw_null_ostream nowhere;
  instance.setVerboseOutputStream(nowhere);  // otherwise "1 error generated." goes to stderr
  instance.createDiagnostics(new clang::TextDiagnosticPrinter(text, &instance.getDiagnosticOpts()), true);

  const std::vector<std::string> flags = flags_of(source, file);
  std::vector<const char*> arguments;
  for (const std::string& flag : flags) arguments.push_back(flag.c_str());
  if (!clang::CompilerInvocation::CreateFromArgs(instance.getInvocation(), arguments, instance.getDiagnostics())) return false;
  if (uses_pch) instance.getPreprocessorOpts().ImplicitPCHInclude = kPchFile;
  instance.createFileManager(files_of(source));
  if (output != nullptr) instance.setOutputStream(std::move(output));
  return instance.ExecuteAction(action) && !instance.getDiagnostics().hasErrorOccurred();
}

bool compile_now(const HindcastClangSource& source, llvm::SmallVectorImpl<char>& object, std::string& diagnostics) {
  clang::EmitObjAction action;
  return run_action(source, kMainFile, source.precompiled.size != 0, action, diagnostics,
                    std::make_unique<llvm::raw_svector_ostream>(object));
}

/// GeneratePCHAction, to memory.
class PrecompileAction : public clang::ASTFrontendAction {
 public:
  llvm::StringRef precompiled() const { return {buffer_->Data.data(), buffer_->Data.size()}; }

 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& instance, llvm::StringRef) override {
    return std::make_unique<clang::PCHGenerator>(instance.getPreprocessor(), instance.getModuleCache(), /*OutputFile=*/"",
                                                 /*isysroot=*/"", buffer_, instance.getFrontendOpts().ModuleFileExtensions,
                                                 /*AllowASTWithErrors=*/false, /*IncludeTimestamps=*/false);
  }
  clang::TranslationUnitKind getTranslationUnitKind() override { return clang::TU_Prefix; }

 private:
  std::shared_ptr<clang::PCHBuffer> buffer_ = std::make_shared<clang::PCHBuffer>();
};

bool precompile_now(const HindcastClangSource& source, llvm::SmallVectorImpl<char>& precompiled, std::string& diagnostics) {
  PrecompileAction action;
  if (!run_action(source, kPreludeFile, false, action, diagnostics, nullptr)) return false;
  precompiled.append(action.precompiled().begin(), action.precompiled().end());
  return !precompiled.empty();
}

using Produce = bool(const HindcastClangSource& source, llvm::SmallVectorImpl<char>& bytes, std::string& diagnostics);

int run_guarded(Produce* produce, const HindcastClangSource* source, HindcastClangSink result, HindcastClangSink problem) {
  compiler();
  if (broken) {
    write_to(problem, "Clang failed beyond repair in an earlier compile of this process");
    return 0;
  }
  Escape here;
  if (setjmp(here.where) != 0) {
    escape = nullptr;
    write_to(problem, here.reason);
    return 0;
  }
  escape = &here;
  llvm::SmallVector<char, 0> bytes;
  std::string diagnostics;
  const bool done = produce(*source, bytes, diagnostics);
  escape = nullptr;
  if (done)
    write_to(result, {bytes.data(), bytes.size()});
  else
    write_to(problem, diagnostics.empty() ? "Clang failed without a diagnostic" : llvm::StringRef(diagnostics));
  return done ? 1 : 0;
}

int compile(const HindcastClangSource* source, HindcastClangSink object, HindcastClangSink problem) noexcept {
  return run_guarded(compile_now, source, object, problem);
}

int precompile(const HindcastClangSource* source, HindcastClangSink precompiled, HindcastClangSink problem) noexcept {
  return run_guarded(precompile_now, source, precompiled, problem);
}

// ---------------------------------------------------------------------------------------------------------------------
// Load

struct Loaded {
  llvm::StringMap<void*> symbols;
  jitlink::JITLinkMemoryManager::FinalizedAlloc code;
};

/// The address of a symbol that `library` itself defines. dlsym() alone also searches the library's dependencies: through libm, all of
/// libc.
void* defined_in(void* library, const char* name) {
  void* const address = library == nullptr ? nullptr : dlsym(library, name);
  const link_map* map = nullptr;
  Dl_info found;
  if (address == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || dladdr(address, &found) == 0) return nullptr;
  return strcmp(found.dli_fname, map->l_name) == 0 ? address : nullptr;
}

/// A function of libm, or one that compilers generate calls of for loops and assignments. Looked up in these two libraries, not in the
/// process: a kernel must not bind to a function of the host program that happens to have the same name.
void* external(llvm::StringRef name) {
  const bool memory = name == "memcpy" || name == "memmove" || name == "memset" || name == "memcmp";
  return defined_in(memory ? compiler().libc : compiler().libm, name.str().c_str());
}

/// One link. JITLink owns the object and calls it back; with an in-process memory manager, all calls are made before link() returns.
class Link : public jitlink::JITLinkContext {
 public:
  Link(Loaded& loaded, std::string& problem) : JITLinkContext(nullptr), loaded_(loaded), problem_(problem) {}

  jitlink::JITLinkMemoryManager& getMemoryManager() override { return *compiler().memory; }

  void notifyFailed(llvm::Error error) override { problem_ = llvm::toString(std::move(error)); }

  void lookup(const LookupMap& names, std::unique_ptr<jitlink::JITLinkAsyncLookupContinuation> next) override {
    jitlink::AsyncLookupResult found;
    std::string missing;
    for (const auto& [name, flags] : names) {
      void* const address = external(name);
      if (address != nullptr)
        found[name] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
      else if (flags == jitlink::SymbolLookupFlags::RequiredSymbol)
        missing += " " + name.str();
      else
        found[name] = {};
    }
    if (missing.empty())
      next->run(std::move(found));
    else
      next->run(llvm::createStringError(llvm::inconvertibleErrorCode(), "not in libm, and not part of the kernel:" + missing));
  }

  llvm::Error notifyResolved(jitlink::LinkGraph& graph) override {
    // Nothing would run a constructor.
    for (const char* constructors : {".init_array", ".ctors"}) {
      if (graph.findSectionByName(constructors) != nullptr)
        return llvm::createStringError(llvm::inconvertibleErrorCode(), "it has a global object with a constructor");
    }
    for (const jitlink::Symbol* symbol : graph.defined_symbols()) {
      if (symbol->hasName() && symbol->getScope() != jitlink::Scope::Local)
        loaded_.symbols[symbol->getName()] = symbol->getAddress().toPtr<void*>();
    }
    return llvm::Error::success();
  }

  void notifyFinalized(jitlink::JITLinkMemoryManager::FinalizedAlloc code) override { loaded_.code = std::move(code); }

 private:
  Loaded& loaded_;
  std::string& problem_;
};

int load(HindcastClangText object, void** out, HindcastClangSink problem) noexcept {
  if (!compiler().memory) {
    write_to(problem, "the size of a page is not known");
    return 0;
  }
  // Copied, since the caller's bytes may not be aligned.
  const auto bytes = llvm::MemoryBuffer::getMemBufferCopy(view(object), "kernel.o");
  auto graph = jitlink::createLinkGraphFromObject(bytes->getMemBufferRef());
  if (!graph) {
    write_to(problem, llvm::toString(graph.takeError()));
    return 0;
  }
  auto loaded = std::make_unique<Loaded>();
  std::string text;
  jitlink::link(std::move(*graph), std::make_unique<Link>(*loaded, text));
  if (!loaded->code) {
    write_to(problem, text.empty() ? "the linker failed without a message" : llvm::StringRef(text));
    return 0;
  }
  *out = loaded.release();
  return 1;
}

void* find(const void* loaded, const char* name) noexcept { return static_cast<const Loaded*>(loaded)->symbols.lookup(name); }

void unload(void* handle) noexcept {
  const std::unique_ptr<Loaded> loaded(static_cast<Loaded*>(handle));
  llvm::consumeError(compiler().memory->deallocate(std::move(loaded->code)));
}

const char* identity() noexcept { return compiler().identity.c_str(); }

constexpr HindcastClangTable kTable = {kHindcastClangVersion, identity, compile, precompile, load, find, unload};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HindcastClangTable* hindcast_clang_table(void) { return &kTable; }
