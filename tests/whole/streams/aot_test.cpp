// Functions compiled ahead of time, on a machine with an accelerator. Their streams: tests/engine/cuda_graphs/aot_test.cpp.

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>

#include "hindcast/aot.h"
#include "tests/support/fake_device.h"

namespace hindcast::tests {
namespace {

// A program contains the casts of autocast.
TEST(FunctionsBesideAnAccelerator, SwitchesOfTheAcceleratorAreAnotherProgram) {
  install_fake_device();
  AotOptions options;
  options.async = false;
  const AotFunction<std::function<at::Tensor(at::Tensor)>> function{[](const at::Tensor& x) { return x.tanh(); }, options};
  // There are no kernels for this device, so functions run eagerly; the switches are checked whatever the inputs' device is.
  const auto x = leaf(1, at::kCPU);
  const auto step = [&] { function(x).sum().backward(); };
  step();
  step();
  EXPECT_EQ(function.stats().traces, 1U);
  at::autocast::set_autocast_enabled(at::kPrivateUse1, true);
  step();
  at::autocast::set_autocast_enabled(at::kPrivateUse1, false);
  EXPECT_EQ(function.stats().traces, 2U);
  step();
  EXPECT_EQ(function.stats().traces, 2U);
}

}  // namespace
}  // namespace hindcast::tests
