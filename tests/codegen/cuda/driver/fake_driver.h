#pragma once
// Stands in for NVIDIA's driver and for LibTorch's part for CUDA, neither of which is here: records the calls, and fails where a test says
// so. One driver at a time; each thread has its own current device, stream and context.

#include "codegen/cuda/driver.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::tests {

inline constexpr int kOutOfMemory = 2, kNoBinary = 209, kNotFound = 500, kUnknown = 999;

inline void* handle(uintptr_t number) { return reinterpret_cast<void*>(number); }

class FakeDriver {
 public:
  struct Launched {
    void* function = nullptr;
    std::vector<unsigned> grid_block_shared;
    void* stream = nullptr;
    void* context = nullptr;  // current at the call
    std::string argument;     // its first bytes
  };

  FakeDriver() {
    now() = this;
    current_context() = nullptr;
  }
  ~FakeDriver() { now() = nullptr; }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  /// Compute capabilities.
  std::vector<int> cards = {90, 90};
  std::map<int, int> attributes = {{1, 1024}, {8, 48 << 10}, {16, 132}, {39, 2048}, {82, 1 << 16}, {97, 227 << 10}};
  std::vector<bool> active = {true, false};
  /// The call that fails, and how.
  std::string failing;
  int failure = kOutOfMemory;
  size_t argument_bytes = 0;
  bool captures = false;

  /// Names of calls with the arguments that matter, in order. Launches are separate.
  std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  size_t count(const std::string& call) const {
    const std::vector<std::string> all = calls();
    return static_cast<size_t>(std::count(all.begin(), all.end(), call));
  }
  /// Nodes of graphs whose arguments were updated: the graph, the node, and the argument's first bytes.
  struct Updated {
    void* executable = nullptr;
    void* node = nullptr;
    std::string argument;
    void* context = nullptr;  // current at the call
  };
  std::vector<Updated> updates() const {
    const std::lock_guard lock(mutex_);
    return updates_;
  }
  /// The node of the launch of this number, during a capture.
  static void* node_of(size_t launch) { return handle(0xb0 + launch); }
  std::vector<Launched> launches() const {
    const std::lock_guard lock(mutex_);
    return launches_;
  }

  static void*& current_context() {
    thread_local void* context = nullptr;
    return context;
  }
  static int& capture_mode() {
    thread_local int mode = 0;
    return mode;
  }
  /// The driver's handle of the device of an index.
  static int device_of(int index) { return 10 + index; }
  /// Its primary context; 0xd0 and so on are other contexts of it.
  static void* context_of(int index) { return handle(0xc0 + static_cast<uintptr_t>(index)); }

  codegen::cuda::DriverFunctions functions() const;

 private:
  static FakeDriver*& now() {
    static FakeDriver* driver = nullptr;
    return driver;
  }
  static int words(int result, const char* out_of_memory, const char* no_binary, const char** text) {
    if (result != kOutOfMemory && result != kNoBinary) return 1;
    *text = result == kOutOfMemory ? out_of_memory : no_binary;
    return 0;
  }
  /// What the call returns.
  int called(const std::string& name, const std::string& arguments = "") {
    const std::lock_guard lock(mutex_);
    calls_.push_back(name + (arguments.empty() ? "" : " " + arguments));
    return name == failing ? failure : 0;
  }

  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  std::vector<Launched> launches_;
  std::vector<Updated> updates_;
  void* last_node_ = nullptr;
};

/// Two devices. Streams are numbers.
class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static c10::DeviceIndex& current() {
    thread_local c10::DeviceIndex device = 0;
    return device;
  }
  static c10::StreamId& stream_id() {
    thread_local c10::StreamId stream = 0;
    return stream;
  }
  /// The stream that was synchronised last: 100 times its device, plus its number.
  static int& synchronised() {
    thread_local int count = 0;
    return count;
  }
  static void* stream_of(int device, int64_t id) {
    return handle(0x1000 * (1 + static_cast<uintptr_t>(device)) + static_cast<uintptr_t>(id));
  }

  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override { return {c10::kCUDA, std::exchange(current(), device.index())}; }
  c10::Device getDevice() const override { return {c10::kCUDA, current()}; }
  void setDevice(c10::Device device) const override { current() = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current() = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return numbered(device, stream_id()); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return numbered(stream.device(), std::exchange(stream_id(), stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return stream_of(stream.device_index(), stream.id()); }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronised() = 100 * stream.device_index() + static_cast<int>(stream.id());
  }

 private:
  static c10::Stream numbered(c10::Device device, c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device, id); }
};

inline const c10::impl::DeviceGuardImplRegistrar registered(c10::kCUDA, new FakeGuard);

inline codegen::cuda::DriverFunctions FakeDriver::functions() const {
  codegen::cuda::DriverFunctions f;
  f.cuGetErrorName = [](int result, const char** text) {
    return words(result, "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_NO_BINARY_FOR_GPU", text);
  };
  f.cuGetErrorString = [](int result, const char** text) { return words(result, "out of memory", "no kernel image is available", text); };
  f.cuDeviceGetCount = [](int* count) {
    *count = static_cast<int>(now()->cards.size());
    return now()->called("cuDeviceGetCount");
  };
  f.cuDeviceGet = [](int* device, int index) {
    *device = device_of(index);
    return now()->called("cuDeviceGet");
  };
  f.cuDeviceGetAttribute = [](int* value, int attribute, int device) {
    const int capability = now()->cards.at(static_cast<size_t>(device - device_of(0)));
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : now()->attributes.at(attribute);
    return now()->called("cuDeviceGetAttribute");
  };
  f.cuDevicePrimaryCtxGetState = [](int device, unsigned* flags, int* active) {
    *flags = 0;
    *active = now()->active.at(static_cast<size_t>(device - device_of(0))) ? 1 : 0;
    return now()->called("cuDevicePrimaryCtxGetState", std::to_string(device));
  };
  f.cuDevicePrimaryCtxRetain = [](void** context, int device) {
    *context = context_of(device - device_of(0));
    return now()->called("cuDevicePrimaryCtxRetain", std::to_string(device));
  };
  f.cuCtxGetDevice = [](int* device) {
    if (current_context() == nullptr) {
      now()->called("cuCtxGetDevice", "without a context");
      return 201;  // CUDA_ERROR_INVALID_CONTEXT
    }
    *device = device_of(static_cast<int>(reinterpret_cast<uintptr_t>(current_context()) % 16));
    return now()->called("cuCtxGetDevice");
  };
  f.cuCtxGetCurrent = [](void** context) {
    *context = current_context();
    return now()->called("cuCtxGetCurrent");
  };
  f.cuCtxSetCurrent = [](void* context) {
    current_context() = context;
    return now()->called("cuCtxSetCurrent");
  };
  f.cuThreadExchangeStreamCaptureMode = [](int* mode) {
    std::swap(*mode, capture_mode());
    return now()->called("cuThreadExchangeStreamCaptureMode");
  };
  f.cuLibraryLoadData = [](void** library, const void* object, int*, void**, unsigned, int*, void**, unsigned) {
    *library = handle(0x11b);
    return now()->called("cuLibraryLoadData", std::string(static_cast<const char*>(object)) + " in mode " + std::to_string(capture_mode()));
  };
  f.cuLibraryGetKernel = [](void** kernel, void* library, const char* name) {
    *kernel = handle(0xf00 + std::strlen(name));
    const int result = now()->called("cuLibraryGetKernel", name);
    return result == 0 && library != handle(0x11b) ? kUnknown : result;
  };
  f.cuKernelGetAttribute = [](int* value, int attribute, void*, int) {
    *value = attribute == 1 ? 1000 : 0;
    return now()->called("cuKernelGetAttribute");
  };
  f.cuKernelSetAttribute = [](int attribute, int value, void*, int device) {
    return now()->called("cuKernelSetAttribute",
                         std::to_string(attribute) + " to " + std::to_string(value) + " on " + std::to_string(device));
  };
  f.cuKernelGetFunction = [](void** function, void* kernel) {
    *function = kernel;
    return now()->called("cuKernelGetFunction", "in context " + std::to_string(reinterpret_cast<uintptr_t>(current_context())));
  };
  f.cuLibraryUnload = [](void* library) { return now()->called("cuLibraryUnload", library == handle(0x11b) ? "" : "of another library"); };
  f.cuStreamIsCapturing = [](void*, int* status) {
    *status = now()->captures ? 1 : 0;
    return now()->called("cuStreamIsCapturing");
  };
  f.cuStreamWriteValue64_v2 = [](void* stream, uint64_t address, uint64_t value, unsigned flags) {
    return now()->called("cuStreamWriteValue64_v2", std::to_string(value) + " to " + std::to_string(address) + " on " +
                                                        std::to_string(reinterpret_cast<uintptr_t>(stream)) + " in context " +
                                                        std::to_string(reinterpret_cast<uintptr_t>(current_context())) +
                                                        (flags == 0 ? "" : " with flags"));
  };
  f.cuStreamGetCaptureInfo_v2 = [](void*, int* status, unsigned long long* id, void** graph, void* const** last_nodes, size_t* count) {
    *status = 1;
    *id = 7;
    *graph = handle(0x9);
    now()->last_node_ = node_of(now()->launches().size() - 1);
    *last_nodes = &now()->last_node_;
    *count = 1;
    return now()->called("cuStreamGetCaptureInfo_v2");
  };
  // Only the argument pointer of CUDA_KERNEL_NODE_PARAMS_v2 is used; it follows the function and seven numbers.
  f.cuGraphKernelNodeGetParams_v2 = [](void*, void* parameters) {
    std::memset(parameters, 0x5a, 72);
    return now()->called("cuGraphKernelNodeGetParams_v2");
  };
  f.cuGraphExecKernelNodeSetParams_v2 = [](void* executable, void* node, const void* parameters) {
    void** arguments = nullptr;
    std::memcpy(&arguments, static_cast<const char*>(parameters) + 40, sizeof(arguments));
    const int result = now()->called("cuGraphExecKernelNodeSetParams_v2");
    const std::lock_guard lock(now()->mutex_);
    now()->updates_.push_back(
        {executable, node, std::string(static_cast<const char*>(arguments[0]), now()->argument_bytes), current_context()});
    return result;
  };
  f.cuLaunchKernel = [](void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra) {
    const int result = now()->called("cuLaunchKernel", extra == nullptr ? "" : "with extra");
    const std::lock_guard lock(now()->mutex_);
    now()->launches_.push_back({function,
                                {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes},
                                stream,
                                current_context(),
                                std::string(static_cast<const char*>(arguments[0]), now()->argument_bytes)});
    return result;
  };
  return f;
}

}  // namespace hindcast::tests
