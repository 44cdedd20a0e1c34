// libhindcast_auto.so: `LD_PRELOAD=libhindcast_auto.so ./trainer` enables hindcast for all threads of an unmodified program.
//
// The library interposes one function of LibTorch, Engine::get_default_engine(), which LibTorch calls when a tensor is saved and when a
// backward starts. The first call loads libhindcast.so from this library's folder and calls hindcast_enable_process(); it and all later
// calls are then forwarded to LibTorch's function. So a program without LibTorch never runs code of this file, and it does not matter when
// and how LibTorch is loaded.
//
// Failures print one line, and the program continues with LibTorch's engine.

#include "hindcast/hindcast_c.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hindcast::preload {
namespace {

using GetEngine = void* (*)();
constexpr const char* kGetEngine = "_ZN5torch8autograd6Engine18get_default_engineEv";

void warn(const char* what, const char* detail = "") {
  std::fprintf(stderr, "libhindcast_auto: %s%s; LibTorch's engine runs everything\n", what, detail);
}

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// A handle of the library that contains an address; it is already loaded.
void* library_at(const void* address) {
  Dl_info where;
  if (dladdr(address, &where) == 0) return nullptr;
  return dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

// Globals, since a function for atexit() takes no arguments.
decltype(&hindcast_report) report = nullptr;
decltype(&hindcast_free_text) free_text = nullptr;

void report_at_exit() {
  char* text = nullptr;
  if (report(&text) != HINDCAST_OK) return;
  const auto former = std::signal(SIGPIPE, SIG_IGN);  // a reader of stderr that has ended must not change the exit status
  std::fprintf(stderr, "hindcast, process %ld:\n%s\n", static_cast<long>(getpid()), text);
  std::signal(SIGPIPE, former);
  free_text(text);
}

void* load_hindcast() {
  if (void* const loaded = dlopen(HINDCAST_LIBRARY, RTLD_LAZY | RTLD_NOLOAD)) return loaded;  // the program has it
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&load_hindcast), &here) == 0) return nullptr;
  const char* const slash = std::strrchr(here.dli_fname, '/');
  char path[4096];
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - here.dli_fname) + 1;
  if (std::snprintf(path, sizeof(path), "%.*s%s", folder, here.dli_fname, HINDCAST_LIBRARY) >= static_cast<int>(sizeof(path)))
    return nullptr;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// hindcast depends on internals of one LibTorch release, and must not even be loaded into a process with another.
bool is_our_libtorch(GetEngine get_engine) {
  void* const library = library_at(reinterpret_cast<const void*>(get_engine));
  const auto get_version = library == nullptr ? nullptr : symbol<uint64_t (*)()>(library, "aoti_torch_abi_version");
  const uint64_t version = get_version == nullptr ? 0 : get_version();  // major, minor and patch in the highest bytes
  char release[16];
  std::snprintf(release, sizeof(release), "%u.%u", static_cast<unsigned>(version >> 56), static_cast<unsigned>(version >> 48 & 0xff));
  if (std::strcmp(release, HINDCAST_TORCH_RELEASE) == 0) return true;
  warn("this hindcast is built for LibTorch " HINDCAST_TORCH_RELEASE ", and the program has ", release);
  return false;
}

void switch_on(GetEngine get_engine) {
  if (is_set("HINDCAST_DISABLE")) return;
  // Python calls its engine without get_default_engine(), and would load a second copy of hindcast with its package.
  if (dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr) {
    if (is_set("HINDCAST_REPORT")) warn("this is a Python program: run it as `python -m hindcast script.py`");
    return;
  }
  if (!is_our_libtorch(get_engine)) return;
  void* const library = load_hindcast();
  if (library == nullptr) return warn("cannot load " HINDCAST_LIBRARY ": ", dlerror());
  const auto enable = symbol<decltype(&hindcast_enable_process)>(library, "hindcast_enable_process");
  const auto last_error = symbol<decltype(&hindcast_last_error)>(library, "hindcast_last_error");
  report = symbol<decltype(&hindcast_report)>(library, "hindcast_report");
  free_text = symbol<decltype(&hindcast_free_text)>(library, "hindcast_free_text");
  if (enable == nullptr || last_error == nullptr || report == nullptr || free_text == nullptr) {
    return warn(HINDCAST_LIBRARY " lacks a function that this file needs: the two are from different builds");
  }
  uint64_t guard = 0;
  if (enable(nullptr, &guard) != HINDCAST_OK) return warn(last_error());
  if (is_set("HINDCAST_REPORT")) std::atexit(&report_at_exit);
}

std::atomic<GetEngine> libtorchs{nullptr};
std::atomic_flag is_on = ATOMIC_FLAG_INIT;

void* first_call(const void* caller) {
  GetEngine found = symbol<GetEngine>(RTLD_NEXT, kGetEngine);
  // LibTorch may be in a local symbol scope, as when Java or a plug-in loads it. But the caller of this function can see LibTorch's own, or
  // is LibTorch.
  if (found == nullptr) {
    if (void* const library = library_at(caller)) found = symbol<GetEngine>(library, kGetEngine);
  }
  if (found == nullptr) {
    std::fprintf(stderr, "libhindcast_auto: cannot find LibTorch's Engine::get_default_engine(); run the program without LD_PRELOAD\n");
    std::abort();
  }
  libtorchs.store(found);  // other threads call LibTorch from here on, without waiting for us
  if (!is_on.test_and_set()) switch_on(found);
  return found();
}

}  // namespace
}  // namespace hindcast::preload

/// torch::autograd::Engine::get_default_engine(). An Engine&, as a pointer.
extern "C" HINDCAST_C_API void* hindcast_auto_get_default_engine() asm("_ZN5torch8autograd6Engine18get_default_engineEv");
void* hindcast_auto_get_default_engine() {
  using namespace hindcast::preload;
  if (const GetEngine known = libtorchs.load(std::memory_order_acquire)) return known();
  return first_call(__builtin_return_address(0));
}
