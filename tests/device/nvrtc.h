#pragma once
// NVRTC, loaded at run time: no CUDA header and no GPU is needed to compile for one.

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace hindcast::tests {

class Nvrtc {
 public:
  /// Null, with a reason in `why_not`, where there is no NVRTC.
  static std::unique_ptr<Nvrtc> load(std::string& why_not) {
    namespace fs = std::filesystem;
    const fs::path site_packages = fs::path(HINDCAST_TORCH_INCLUDE_DIR).parent_path().parent_path();
    for (const fs::path& path :
         {site_packages / "nvidia/cu13/lib/libnvrtc.so.13", fs::path("libnvrtc.so.13"), fs::path("/usr/local/cuda/lib64/libnvrtc.so.13")}) {
      void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        why_not += std::string(dlerror()) + "; ";
        continue;
      }
      auto nvrtc = std::unique_ptr<Nvrtc>(new Nvrtc);
      const bool complete =
          nvrtc->find(library, "nvrtcCreateProgram", nvrtc->create_) && nvrtc->find(library, "nvrtcDestroyProgram", nvrtc->destroy_) &&
          nvrtc->find(library, "nvrtcCompileProgram", nvrtc->compile_) &&
          nvrtc->find(library, "nvrtcGetProgramLogSize", nvrtc->log_size_) && nvrtc->find(library, "nvrtcGetProgramLog", nvrtc->log_) &&
          nvrtc->find(library, "nvrtcGetCUBINSize", nvrtc->cubin_size_);
      if (complete) return nvrtc;
      why_not += path.string() + " lacks a function; ";
    }
    return nullptr;
  }

  struct Header {
    std::string name;
    std::string text;
  };
  struct Result {
    int code;
    std::string log;
    size_t cubin_bytes;
  };

  Result compile(const std::string& source, const std::vector<Header>& headers, const std::vector<std::string>& options) const {
    std::vector<const char*> texts, names, flags;
    for (const Header& header : headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    for (const std::string& option : options) flags.push_back(option.c_str());
    void* program = nullptr;
    create_(&program, source.c_str(), "ops.cu", int(headers.size()), texts.data(), names.data());
    Result result = {compile_(program, int(flags.size()), flags.data()), "", 0};
    size_t log_bytes = 0;
    log_size_(program, &log_bytes);
    result.log.resize(log_bytes);
    log_(program, result.log.data());
    if (result.code == 0) cubin_size_(program, &result.cubin_bytes);
    destroy_(&program);
    return result;
  }

 private:
  template <class F>
  static bool find(void* library, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    return function != nullptr;
  }

  int (*create_)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy_)(void**);
  int (*compile_)(void*, int, const char* const*);
  int (*log_size_)(void*, size_t*);
  int (*log_)(void*, char*);
  int (*cubin_size_)(void*, size_t*);
};

/// codegen/device, under the names by which kernels include it.
inline std::vector<Nvrtc::Header> device_headers() {
  namespace fs = std::filesystem;
  std::vector<Nvrtc::Header> headers;
  const fs::path root = HINDCAST_SOURCE_DIR;
  for (const auto& entry : fs::directory_iterator(root / "codegen/device")) {
    if (entry.path().extension() != ".h") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    headers.push_back({fs::relative(entry.path(), root).string(), text.str()});
  }
  return headers;
}

}  // namespace hindcast::tests
