// The programs of tests/gpu, on the CPU, in kernels that the emulator runs.

#include "tests/gpu/programs/device_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"

namespace hindcast::tests::cuda {
namespace {

class Programs : public testing::TestWithParam<DeviceProgram> {};

TEST_P(Programs, GiveWhatTheStockEngineDoes) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  take_launched();
  expect_like_stock(GetParam(), c10::kCPU, c10::kCPU);
  const std::vector<std::string> launched = take_launched();
  for (const std::string& kernel : GetParam().kernels) EXPECT_THAT(launched, testing::Contains(kernel));
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(device_programs()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests::cuda
