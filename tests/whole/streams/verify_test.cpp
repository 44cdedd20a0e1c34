// Options::verify on an accelerator, where some of LibTorch's operators add in any order, so that a replay gives other bits.

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/library.h>
#include <torch/types.h>

#include "hindcast/hindcast.h"
#include "tests/support/fake_device.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

double noise = 0;  // of an element, relative

/// Each call gives another result.
at::Tensor noisy(const at::Tensor& x) {
  static int calls = 0;
  return x * (1 + noise * (++calls % 3));
}

TORCH_LIBRARY_FRAGMENT(hindcast_tests, library) { library.def("noisy(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(hindcast_tests, PrivateUse1, library) { library.impl("noisy", noisy); }

struct NoisyGradient : torch::autograd::Function<NoisyGradient> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("hindcast_tests::noisy", "").typed<at::Tensor(const at::Tensor&)>();
    return {op.call(grads[0] * 2).sin()};
  }
};

Stats stats_of_steps(double of_noise) {
  install_fake_device();
  noise = of_noise;
  reset();
  Options options;
  options.compiler = compilers::eager();
  options.verify = true;
  const auto guard = enable(options);
  const auto x = at::ones({4, 5}).to(fake()).requires_grad_();
  for (int step = 0; step < 3; ++step) NoisyGradient::apply(x).sum().backward();
  return stats();
}

TEST(VerifyOnAnAccelerator, IsNotToTheBitWhereReplaysDiffer) {
  const LogCapture logs("");
  const Stats stats = stats_of_steps(1e-6);
  EXPECT_EQ(stats.refused_graphs, 0U) << logs.text();
  EXPECT_EQ(stats.opaque_calls, 0U) << stats;
  EXPECT_EQ(logs.count("is not compared to the bit"), 1U) << logs.text();
}

TEST(VerifyOnAnAccelerator, RefusesWhatIsFarOff) {
  const LogCapture logs("");
  EXPECT_GT(stats_of_steps(0.5).refused_graphs, 0U) << logs.text();
}

TEST(VerifyOnAnAccelerator, IsToTheBitWhereReplaysAreAlike) {
  const LogCapture logs("");
  EXPECT_EQ(stats_of_steps(0).refused_graphs, 0U);
  EXPECT_EQ(logs.count("is not compared to the bit"), 0U) << logs.text();
}

}  // namespace
}  // namespace hindcast::tests
