#include "codegen/store/store_folder.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace hindcast::codegen::store {
namespace {

/// As XDG's specification requires, a path that is not absolute is ignored.
bool is_path(const char* value) { return value != nullptr && *value == '/'; }

}  // namespace

// Kernels in the folder are executed, so a program with more rights than its caller (setuid) ignores the caller's environment.
std::string default_store_folder() {
  if (const char* const given = secure_getenv("HINDCAST_CACHE_DIR")) {
    if (*given == '\0' || std::string_view(given) == "0") return "";
    // The program may change its working directory later.
    std::error_code error;
    const auto absolute = std::filesystem::absolute(given, error);
    return error ? std::string() : absolute.string();
  }
  if (const char* const caches = secure_getenv("XDG_CACHE_HOME"); is_path(caches)) return std::string(caches) + "/hindcast";
  if (const char* const home = secure_getenv("HOME"); is_path(home)) return std::string(home) + "/.cache/hindcast";
  return "";
}

}  // namespace hindcast::codegen::store
