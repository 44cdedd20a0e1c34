#include "codegen/cuda/nvrtc.h"

#include "base/fork.h"
#include "base/fork_gate.h"
#include "base/format.h"

#include <c10/core/CPUAllocator.h>

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace hindcast::codegen::cuda {

// The functions in use, as declared by nvrtc.h of CUDA 13.0; CUDA 12 has the same. A result is an enum, 0 is success; a program is
// a pointer.
struct NvrtcFunctions {
  int (*nvrtcGetNumSupportedArchs)(int* count) = nullptr;
  int (*nvrtcGetSupportedArchs)(int* architectures) = nullptr;
  const char* (*nvrtcGetErrorString)(int result) = nullptr;
  int (*nvrtcCreateProgram)(void** program, const char* text, const char* name, int headers, const char* const* header_texts,
                            const char* const* header_names) = nullptr;
  int (*nvrtcDestroyProgram)(void** program) = nullptr;
  int (*nvrtcCompileProgram)(void* program, int options, const char* const* option_texts) = nullptr;
  int (*nvrtcGetProgramLogSize)(void* program, size_t* bytes) = nullptr;
  int (*nvrtcGetProgramLog)(void* program, char* log) = nullptr;
  int (*nvrtcGetPTXSize)(void* program, size_t* bytes) = nullptr;
  int (*nvrtcGetPTX)(void* program, char* text) = nullptr;
  int (*nvrtcGetCUBINSize)(void* program, size_t* bytes) = nullptr;
  int (*nvrtcGetCUBIN)(void* program, char* object) = nullptr;
};

namespace {

namespace fs = std::filesystem;

constexpr const char* kOverride = "HINDCAST_NVRTC";
constexpr const char* kHowToGet = "It comes with PyPI's torch (the package nvidia-cuda-nvrtc) and with the CUDA toolkit";

std::vector<std::string> candidate_paths_of_nvrtc() {
  const char* const given = secure_getenv(kOverride);  // nullptr in a program that runs with more rights than its caller (setuid)
  if (given != nullptr && *given != '\0') return {given};
  Dl_info torch;
  std::error_code error;
  fs::path libraries;
  if (dladdr(reinterpret_cast<const void*>(&c10::GetCPUAllocator), &torch) != 0 && torch.dli_fname != nullptr)
    libraries = fs::canonical(torch.dli_fname, error).parent_path();
  const fs::path packages = libraries.parent_path().parent_path() / "nvidia";
  // First the NVRTC that belongs to LibTorch, of whatever version: a driver that works with LibTorch may be too old for code of a newer
  // NVRTC.
  std::vector<std::string> paths, elsewhere;
  std::array<std::string, 2> versions = {"13", "12"};
  if (dlopen("libcudart.so.12", RTLD_LAZY | RTLD_NOLOAD) != nullptr) std::swap(versions[0], versions[1]);
  for (const std::string& version : versions) {
    const std::string name = "libnvrtc.so." + version;
    for (const fs::path& folder : {packages / ("cu" + version) / "lib", packages / "cuda_nvrtc/lib", libraries})
      if (!libraries.empty() && fs::exists(folder / name, error)) paths.push_back(folder / name);
    elsewhere.push_back(name);
    elsewhere.push_back("/usr/local/cuda/lib64/" + name);
  }
  paths.insert(paths.end(), elsewhere.begin(), elsewhere.end());
  return paths;
}

template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  return function != nullptr;
}

/// The name of the first function that the library lacks; nullptr if it has all.
const char* lacking(void* library, NvrtcFunctions& functions) {
#define HC_FIND(name) \
  if (!find(library, #name, functions.name)) return #name
  HC_FIND(nvrtcGetNumSupportedArchs);
  HC_FIND(nvrtcGetSupportedArchs);
  HC_FIND(nvrtcGetErrorString);
  HC_FIND(nvrtcCreateProgram);
  HC_FIND(nvrtcDestroyProgram);
  HC_FIND(nvrtcCompileProgram);
  HC_FIND(nvrtcGetProgramLogSize);
  HC_FIND(nvrtcGetProgramLog);
  HC_FIND(nvrtcGetPTXSize);
  HC_FIND(nvrtcGetPTX);
  HC_FIND(nvrtcGetCUBINSize);
  HC_FIND(nvrtcGetCUBIN);
#undef HC_FIND
  return nullptr;
}

class Program {
 public:
  Program(const NvrtcFunctions& functions, std::string_view text, std::span<const DeviceHeader> headers) : functions_(functions) {
    const std::string own(text);
    std::vector<std::string> strings;  // NVRTC needs null-terminated strings
    std::vector<const char*> texts, names;
    strings.reserve(2 * headers.size());
    for (const DeviceHeader& header : headers) {
      names.push_back(strings.emplace_back(header.name).c_str());
      texts.push_back(strings.emplace_back(header.text).c_str());
    }
    const int result =
        functions.nvrtcCreateProgram(&program_, own.c_str(), "kernel.cu", static_cast<int>(headers.size()), texts.data(), names.data());
    if (result != 0) HC_UNSUPPORTED("nvrtcCreateProgram failed: {}", functions.nvrtcGetErrorString(result));
  }
  ~Program() { functions_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int compile(std::span<const std::string> options) const {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return functions_.nvrtcCompileProgram(program_, static_cast<int>(texts.size()), texts.data());
  }
  std::string log() const { return bytes(functions_.nvrtcGetProgramLogSize, functions_.nvrtcGetProgramLog); }
  std::string ptx() const { return bytes(functions_.nvrtcGetPTXSize, functions_.nvrtcGetPTX); }
  std::string object() const { return bytes(functions_.nvrtcGetCUBINSize, functions_.nvrtcGetCUBIN); }

 private:
  /// Empty if NVRTC has no result.
  std::string bytes(int (*size)(void*, size_t*), int (*get)(void*, char*)) const {
    size_t count = 0;
    if (size(program_, &count) != 0 || count == 0) return {};
    std::string bytes(count, '\0');
    if (get(program_, bytes.data()) != 0) return {};
    return bytes;
  }

  const NvrtcFunctions& functions_;
  void* program_ = nullptr;
};

/// NVRTC's static data is destroyed when the process exits, while other threads may still run: the exit waits for threads inside NVRTC, and
/// lets none enter afterwards.
class UntilExit {
 public:
  UntilExit() : inside_(gate()) {
    if (ended) HC_UNSUPPORTED("the process ends");
  }
  /// To be called after the library is loaded, so that this exit handler runs before the library's destructors.
  static void watch() {
    [[maybe_unused]] static const int watched = std::atexit([] {
      const std::unique_lock all_are_out(gate());
      ended = true;
    });
  }

 private:
  static std::shared_mutex& gate() {
    static constinit base::MadeOnce<std::shared_mutex> made;  // locked only inside the compiler's fork gate, so that it is free at a fork
    return made.get();
  }
  inline static bool ended = false;

  const std::shared_lock<std::shared_mutex> inside_;
};

std::string without_zero(std::string text) {
  while (text.ends_with('\0')) text.pop_back();
  return text;
}

std::string joined(std::span<const std::string> words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
  return all;
}

}  // namespace

Nvrtc::Nvrtc() : functions_(std::make_unique<NvrtcFunctions>()) {}
Nvrtc::~Nvrtc() = default;

const Nvrtc* Nvrtc::get(std::string* why_not) {
  struct Found {
    std::unique_ptr<const Nvrtc> nvrtc;
    std::string why_not;
  };
  // Never destroyed, since a thread may compile while the process exits.
  static constinit base::MadeOnce<const Found> made;
  const Found& found = made.by([] {
    Found result;
    result.nvrtc = open(candidate_paths_of_nvrtc(), &result.why_not);
    return result;
  });
  if (!found.nvrtc && why_not != nullptr) *why_not = found.why_not;
  return found.nvrtc.get();
}

std::unique_ptr<const Nvrtc> Nvrtc::open(std::span<const std::string> paths, std::string* why_not) {
  const base::InsideCompiler inside;
  std::string errors;
  for (const std::string& path : paths) {
    // The library is never unloaded, since threads may be in it until the process ends.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    std::string error;
    if (library == nullptr) {
      const char* const text = dlerror();
      error = text == nullptr ? "unknown error" : text;
    } else {
      std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
      if (const char* const name = lacking(library, *nvrtc->functions_)) {
        error = base::format("{} has no {}", path, name);
      } else {
        try {
          nvrtc->describe();
          UntilExit::watch();
          return nvrtc;
        } catch (const Unsupported& problem) {
          error = base::format("{}: {}", path, problem.what());
        }
      }
    }
    errors += (errors.empty() ? "" : "; ") + error;
  }
  if (why_not != nullptr) {
    *why_not = base::format("NVRTC, the compiler for CUDA kernels, could not be loaded ({}). {}; set {} to its path if it lies elsewhere.",
                            errors, kHowToGet, kOverride);
  }
  return nullptr;
}

void Nvrtc::describe() {
  int count = 0;
  if (functions_->nvrtcGetNumSupportedArchs(&count) != 0 || count <= 0) HC_UNSUPPORTED("it names no architectures");
  architectures_.resize(static_cast<size_t>(count));
  if (functions_->nvrtcGetSupportedArchs(architectures_.data()) != 0) HC_UNSUPPORTED("it names no architectures");
  // nvrtcVersion() does not distinguish builds of a version. The head of a program's PTX does, in a line of its own.
  constexpr std::string_view kHead = "// Cuda compilation tools, ";
  const Program empty(*functions_, "", {});
  if (const int result = empty.compile({}); result != 0)
    HC_UNSUPPORTED("it compiles no empty program: {}", functions_->nvrtcGetErrorString(result));
  const std::string ptx = empty.ptx();
  const size_t line = ptx.find(kHead);
  if (line == ptx.npos) HC_UNSUPPORTED("its PTX does not say which build it is");
  const size_t begin = line + kHead.size();
  identity_ = "NVRTC " + ptx.substr(begin, ptx.find('\n', begin) - begin);
}

MachineCode Nvrtc::compile(std::string_view text, std::span<const DeviceHeader> headers, std::span<const std::string> options) const {
  const base::InsideCompiler inside;
  const UntilExit here;
  const Program program(*functions_, text, headers);
  const int result = program.compile(options);
  MachineCode code = {result == 0 ? program.object() : "", without_zero(program.log())};
  if (!code.object.empty()) return code;
  const std::string problem = result == 0 ? "it gave no machine code" : functions_->nvrtcGetErrorString(result);
  throw NvrtcError(
      base::format("{} refused a kernel: {}, with the options {}\n{}\n{}", identity_, problem, joined(options), code.log, text), code.log);
}

std::vector<std::string> kernel_options(int architecture) {
  return {base::format("--gpu-architecture=sm_{}", architecture), "--std=c++17",
          // As on the CPU. With contraction, `a * b - a * b` is the rounding error of `a * b`, and its square root is NaN half the time.
          // The device library calls fma() explicitly where it wants one.
          "--fmad=false",
          // A lambda with `auto` parameters cannot be marked as device code.
          "--device-as-default-execution-space",
          // Reports the registers and spills of a kernel, for the log.
          "--ptxas-options=-v"};
}

std::string object_identity(const Nvrtc& nvrtc, std::span<const std::string> options) {
  std::string identity = nvrtc.identity();
  for (const std::string& option : options) identity += " " + option;
  return identity;
}

}  // namespace hindcast::codegen::cuda
