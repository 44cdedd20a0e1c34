#include "bench/gpu/idle_card.h"

#include <benchmark/benchmark.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>

#include "codegen/cuda/card.h"

namespace hindcast::bench::gpu {
namespace {

/// One device, and its default stream. It reports no devices, so that autograd starts no thread for it.
class OneStream final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return getDevice(); }
  c10::Device getDevice() const override { return {c10::kCUDA, 0}; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void* getStreamNativeHandle(const c10::Stream /*stream*/) const override { return nullptr; }
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
};

/// An H100's values of the CUdevice_attributes that codegen/cuda/card.cpp queries.
int attribute(int which) {
  switch (which) {
    case 1:  // threads of a block
      return 1024;
    case 8:  // shared bytes of a block
      return 48 << 10;
    case 97:  // the same, opt-in maximum
      return 227 << 10;
    case 16:  // multiprocessors
      return 132;
    case 39:  // threads of a multiprocessor
      return 2048;
    case 75:  // the compute capability, major and minor
      return 9;
    default:
      return 0;
  }
}

// The calls of a launch, and those that open a card; no code is loaded.
codegen::cuda::DriverFunctions functions() {
  codegen::cuda::DriverFunctions f;
  f.cuDeviceGetCount = [](int* count) {
    *count = 1;
    return 0;
  };
  f.cuDeviceGet = [](int* device, int index) {
    *device = index;
    return 0;
  };
  f.cuDeviceGetAttribute = [](int* value, int which, int /*device*/) {
    *value = attribute(which);
    return 0;
  };
  f.cuCtxGetCurrent = [](void** context) {
    *context = &context;
    return 0;
  };
  f.cuStreamIsCapturing = [](void*, int* status) {
    *status = 0;
    return 0;
  };
  f.cuCtxGetDevice = [](int* device) {
    *device = 0;
    return 0;
  };
  f.cuLaunchKernel = [](void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void** arguments, void**) {
    benchmark::DoNotOptimize(arguments);
    return 0;
  };
  return f;
}

}  // namespace

const codegen::cuda::Machine* idle_card(std::string* why_not) {
  static const codegen::cuda::Driver driver(functions());
  const codegen::cuda::Nvrtc* const nvrtc = codegen::cuda::Nvrtc::get(why_not);
  if (nvrtc == nullptr) return nullptr;
  static const c10::impl::DeviceGuardImplRegistrar registered(c10::kCUDA, new OneStream);
  static const std::unique_ptr<const codegen::cuda::Card> card = codegen::cuda::Card::open(driver, *nvrtc, why_not);
  return card.get();
}

}  // namespace hindcast::bench::gpu
