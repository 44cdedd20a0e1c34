// Backwards on a card: with kernels, compared with the stock engine's.

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <set>
#include <string>
#include <vector>

#include "tests/gpu/on_gpu.h"
#include "tests/gpu/programs/device_program.h"

namespace hindcast::tests {
namespace {

class GpuBackward : public OnTestedDevice, public testing::WithParamInterface<DeviceProgram> {
 protected:
  void SetUp() override {
    OnTestedDevice::SetUp();
    if (IsSkipped()) return;
    // Convolutions and products must not change rounding or order from call to call.
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setAllowTF32CuDNN(false);
  }
};

TEST_P(GpuBackward, IsTheStockEngines) {
  const c10::Device device = device_of_tests();
  const bool has_two = c10::impl::VirtualGuardImpl(device.type()).deviceCount() > 1;
  expect_like_stock(GetParam(), device, has_two ? c10::Device(device.type(), 1) : device);
}

/// One or two of each kind of kernel; they also run under sanitizers (scripts/gpu_run.sh).
std::vector<DeviceProgram> quick(bool are_quick) {
  const std::set<std::string> names = {"Broadcasts",
                                       "Turned",
                                       "ChannelsLast",
                                       "ZerosAround",
                                       "PartsAlongRows",
                                       "ChainOf4097",
                                       "LayerNormOf8By64",
                                       "LayerNormOf5By33",
                                       "LayerNormOf2By20001",
                                       "SoftmaxOf3By5000",
                                       "SumsOf3000By24",
                                       "CrossEntropyOf7By10Reduced1",
                                       "GroupNormOdd",
                                       "GroupNormOneImage",
                                       "LeavesAddedOf9By24",
                                       "LeavesInABufferOf7By33",
                                       "Hooks",
                                       "TwoStreams"};
  std::vector<DeviceProgram> some;
  for (const DeviceProgram& program : device_programs()) {
    if ((names.count(program.name) != 0) == are_quick) some.push_back(program);
  }
  return some;
}
std::string name_of(const testing::TestParamInfo<DeviceProgram>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Quick, GpuBackward, testing::ValuesIn(quick(true)), name_of);
INSTANTIATE_TEST_SUITE_P(LargePart, GpuBackward, testing::ValuesIn(quick(false)), name_of);

}  // namespace
}  // namespace hindcast::tests
