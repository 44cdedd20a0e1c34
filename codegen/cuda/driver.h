#pragma once
// NVIDIA's driver, libcuda.so.1, opened on first use. hindcast is built without any header or library of CUDA.
//
// LibTorch initialises the driver and creates the contexts. If a process forks after that, the child's calls fail.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hindcast::codegen::cuda {

// The functions in use, as declared by cuda.h of CUDA 13.0; versioned names select the ABI. A result is an enum, 0 is success. Devices are
// ints; contexts, libraries, kernels, functions and streams are pointers; an attribute is an enum. A kernel from cuLibraryGetKernel may be
// launched like a function.
#define HC_DRIVER_FUNCTIONS(X)                                                                                                             \
  X(cuGetErrorName, (int result, const char** text))                                                                                       \
  X(cuGetErrorString, (int result, const char** text))                                                                                     \
  X(cuDeviceGetCount, (int* count))                                                                                                        \
  X(cuDeviceGet, (int* device, int index))                                                                                                 \
  X(cuDeviceGetAttribute, (int* value, int attribute, int device))                                                                         \
  X(cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active))                                                                \
  X(cuDevicePrimaryCtxRetain, (void** context, int device))                                                                                \
  X(cuCtxGetDevice, (int* device))                                                                                                         \
  X(cuCtxGetCurrent, (void** context))                                                                                                     \
  X(cuCtxSetCurrent, (void* context))                                                                                                      \
  X(cuThreadExchangeStreamCaptureMode, (int* mode))                                                                                        \
  X(cuLibraryLoadData, (void** library, const void* object, int* jit_options, void** jit_values, unsigned jit_count, int* options,         \
                        void** values, unsigned count))                                                                                    \
  X(cuLibraryGetKernel, (void** kernel, void* library, const char* name))                                                                  \
  X(cuKernelGetFunction, (void** function, void* kernel))                                                                                  \
  X(cuKernelGetAttribute, (int* value, int attribute, void* kernel, int device))                                                           \
  X(cuKernelSetAttribute, (int attribute, int value, void* kernel, int device))                                                            \
  X(cuLibraryUnload, (void* library))                                                                                                      \
  X(cuStreamWriteValue64_v2, (void* stream, uint64_t address, uint64_t value, unsigned flags))                                             \
  X(cuStreamIsCapturing, (void* stream, int* status))                                                                                      \
  X(cuStreamGetCaptureInfo_v2, (void* stream, int* status, unsigned long long* id, void** graph, void* const** last_nodes, size_t* count)) \
  X(cuGraphKernelNodeGetParams_v2, (void* node, void* parameters))                                                                         \
  X(cuGraphExecKernelNodeSetParams_v2, (void* executable, void* node, const void* parameters))                                             \
  X(cuLaunchKernel, (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,                \
                     unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra))

struct DriverFunctions {
#define HC_MEMBER(name, parameters) int(*name) parameters = nullptr;
  HC_DRIVER_FUNCTIONS(HC_MEMBER)
#undef HC_MEMBER
};

/// A driver error. The text has the call, the error's name, its number and the driver's description.
class DriverError : public std::runtime_error {
 public:
  DriverError(const std::string& text, int result) : std::runtime_error(text), result_(result) {}
  int result() const { return result_; }

 private:
  int result_;
};

class Driver {
 public:
  /// The process's driver, which is never destroyed; nullptr, and the reason in `why_not`, if the machine has no driver.
  static const Driver* get(std::string* why_not);
  /// For tests: the driver from the library at `path`.
  static std::unique_ptr<const Driver> open(const std::string& path, std::string* why_not);
  explicit Driver(const DriverFunctions& functions) : call_(functions) {}

  const DriverFunctions& call() const { return call_; }
  /// Throws DriverError unless `result` is success. `what`: the arguments, if they matter for the message.
  void check(int result, const char* call, std::string_view what = {}) const {
    if (result != 0) [[unlikely]]
      fail(result, call, what);
  }
  /// Whether this process may call the driver: LibTorch has initialised it, in this process and not in a parent before a fork.
  bool initialised() const;

 private:
  [[noreturn, gnu::cold]] void fail(int result, const char* call, std::string_view what) const;

  const DriverFunctions call_;
};

/// HC_CALL(driver, cuDeviceGetCount, &count): calls the function and throws DriverError if it fails.
#define HC_CALL(driver, name, ...) (driver).check((driver).call().name(__VA_ARGS__), #name)

}  // namespace hindcast::codegen::cuda
