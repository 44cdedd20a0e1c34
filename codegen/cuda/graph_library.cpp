#include "codegen/cuda/graph_library.h"

#include "base/fork.h"
#include "base/format.h"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <vector>

namespace hindcast::codegen::cuda {
namespace {

constexpr const char* kGraphLibrary = "libhindcast_cuda_graphs.so";

std::vector<std::string> candidate_paths_of_graphs() {
  std::vector<std::string> paths;
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&graph_library), &own) != 0 && own.dli_fname != nullptr) {
    std::error_code error;
    const auto file = std::filesystem::canonical(own.dli_fname, error);
    if (!error) paths = {file.parent_path() / kGraphLibrary, file.parent_path().parent_path() / "lib" / kGraphLibrary};
  }
  paths.push_back(kGraphLibrary);
  return paths;
}

struct FoundLibrary {
  const CudaGraphsTable* table = nullptr;
  std::string why_not;
};

std::atomic<const CudaGraphsTable*> opened = nullptr;

FoundLibrary open() {
  void* library = nullptr;
  std::string errors;
  for (const std::string& path : candidate_paths_of_graphs()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) break;
    const char* const error = dlerror();
    errors += base::format("{}{}", errors.empty() ? "" : "; ", error == nullptr ? "unknown error" : error);
  }
  if (library == nullptr) return {nullptr, base::format("the library that captures CUDA graphs could not be loaded ({})", errors)};
  const auto entry = reinterpret_cast<CudaGraphsEntry>(dlsym(library, HINDCAST_CUDA_GRAPHS_ENTRY));
  if (entry == nullptr || entry()->version != kCudaGraphsVersion)
    return {nullptr, base::format("{} is not of this build of hindcast: install both from one build", kGraphLibrary)};
  opened.store(entry(), std::memory_order_release);
  return {entry(), ""};
}

}  // namespace

const CudaGraphsTable* graph_library(std::string* why_not) {
  static constinit base::MadeOnce<const FoundLibrary> made;
  const FoundLibrary& found = made.by(open);
  if (found.table == nullptr && why_not != nullptr) *why_not = found.why_not;
  return found.table;
}

const CudaGraphsTable* opened_graph_library() { return opened.load(std::memory_order_acquire); }

}  // namespace hindcast::codegen::cuda
