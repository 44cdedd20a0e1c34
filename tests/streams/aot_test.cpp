// Functions that are compiled ahead of time, on an accelerator: their programs run on the streams of their callers and of their nodes.

#include <ATen/autocast_mode.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>

#include "engine/aot/aot.h"
#include "tests/streams/two_engines.h"
#include "tests/support/fake_device.h"

namespace hindcast::tests {
namespace {

TEST(StreamsOfFunctions, AreThoseOfTheirCallers) {
  install_fake_device();
  AotOptions options;
  options.async = false;
  const AotFunction<std::function<at::Tensor(at::Tensor, at::Tensor)>> function{
      [](const at::Tensor& x, const at::Tensor& w) { return (x.mm(w) * x).tanh(); }, options};
  for (const int side : {0, 1}) {
    expect_same([&](Seen& seen) {
      const auto x = leaf(1, fake()), w = leaf(2, fake());
      at::Tensor y = on_side(side, [&] { return function(x, w); });
      auto z = function(y * x, w);
      seen.hook(y, "y");
      z.sum().backward();
      seen.show(x.grad());
      seen.show(w.grad());
    });
  }
}

// A program holds what autocast made of the function.
TEST(StreamsOfFunctions, SwitchesOfTheAcceleratorAreAnotherProgram) {
  install_fake_device();
  AotOptions options;
  options.async = false;
  const AotFunction<std::function<at::Tensor(at::Tensor)>> function{[](const at::Tensor& x) { return x.tanh(); }, options};
  // Of no device that kernels are made for, functions run as they are: the switches are asked for whatever the inputs' device is.
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
