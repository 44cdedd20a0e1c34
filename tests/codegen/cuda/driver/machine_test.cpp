// Which machine is used: what a test installed, else the card, else a reason why there is none.

#include "base/check.h"
#include "codegen/cuda/machine.h"
#include "tests/codegen/cuda/driver/fake_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace hindcast::tests {
namespace {

using namespace codegen::cuda;

class Installed final : public Machine {
 public:
  c10::DeviceType device() const override { return c10::kCPU; }
  const Limits& limits() const override { return limits_; }
  std::string_view identity() const override { return "installed"; }
  std::string compile(std::string_view) const override { return ""; }
  std::shared_ptr<const Module> load(std::string_view) const override { return nullptr; }
  void launch(const Launch&) const override {}

 private:
  Limits limits_;
};

// LibTorch's part for CUDA, or the test's replacement, is here, but nobody has initialised a driver.
TEST(CudaMachine, WithoutACardThereIsAReason) {
  std::string why_not;
  EXPECT_EQ(machine(&why_not), nullptr);
  EXPECT_THAT(why_not, testing::AnyOf(testing::HasSubstr("There is no NVIDIA driver: libcuda.so.1"),
                                      testing::HasSubstr("CUDA is not initialised in this process")));
  std::string again;
  EXPECT_EQ(machine(&again), nullptr);
  EXPECT_EQ(why_not, again);
  EXPECT_EQ(machine(), nullptr);
  EXPECT_EQ(installed_machine(), nullptr);
}

// In a separate process, since the installation is permanent.
TEST(CudaMachineDeathTest, WhatIsInstalledIsTheMachine) {
  const auto installs = [] {
    static const Installed one, two;
    install_machine(one);
    bool refused = false;
    try {
      install_machine(two);
    } catch (const InternalError&) {
      refused = true;
    }
    _Exit(machine() == &one && installed_machine() == &one && refused ? 0 : 1);
  };
  EXPECT_EXIT(installs(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hindcast::tests
