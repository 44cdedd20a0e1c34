#include "codegen/cuda/driver.h"

#include "base/fork.h"
#include "base/format.h"

#include <dlfcn.h>

namespace hindcast::codegen::cuda {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr int kNotInitialised = 3;  // CUDA_ERROR_NOT_INITIALIZED

}  // namespace

const Driver* Driver::get(std::string* why_not) {
  struct Found {
    std::unique_ptr<const Driver> driver;
    std::string why_not;
  };
  // Never destroyed, since modules are unloaded by objects that live as long as the process.
  static constinit base::MadeOnce<const Found> made;
  const Found& found = made.by([] {
    Found result;
    result.driver = open(kDriver, &result.why_not);
    return result;
  });
  if (!found.driver && why_not != nullptr) *why_not = found.why_not;
  return found.driver.get();
}

std::unique_ptr<const Driver> Driver::open(const std::string& path, std::string* why_not) {
  const auto refuse = [&](std::string sentence) {
    if (why_not != nullptr) *why_not = std::move(sentence);
    return nullptr;
  };
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const error = dlerror();
    return refuse(base::format("There is no NVIDIA driver: {}", error == nullptr ? "unknown error" : error));
  }
  DriverFunctions functions;
#define HC_FIND(name, parameters)                                                     \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, #name)); \
  if (functions.name == nullptr) return refuse(base::format("The NVIDIA driver is older than CUDA 12: {} has no {}", path, #name));
  HC_DRIVER_FUNCTIONS(HC_FIND)
#undef HC_FIND
  return std::make_unique<const Driver>(functions);
}

bool Driver::initialised() const {
  int count = 0;
  return call_.cuDeviceGetCount(&count) != kNotInitialised;
}

void Driver::fail(int result, const char* call, std::string_view what) const {
  const char *name = nullptr, *words = nullptr;
  if (call_.cuGetErrorName(result, &name) != 0 || name == nullptr) name = "an unknown error";
  if (call_.cuGetErrorString(result, &words) != 0 || words == nullptr) words = "no words";
  throw DriverError(base::format("{} failed{}{}: {} ({}): {}", call, what.empty() ? "" : " for ", what, name, result, words), result);
}

}  // namespace hindcast::codegen::cuda
