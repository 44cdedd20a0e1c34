#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace hindcast::tests {

/// Allocations in its scope may leak: for programs whose graph is a reference cycle that LibTorch itself never frees.
class WithoutLeakCheck {
 public:
#if defined(__SANITIZE_ADDRESS__)
  WithoutLeakCheck() { __lsan_disable(); }
  ~WithoutLeakCheck() { __lsan_enable(); }
#else
  WithoutLeakCheck() = default;
  ~WithoutLeakCheck() {}
#endif
  WithoutLeakCheck(const WithoutLeakCheck&) = delete;
};

}  // namespace hindcast::tests
