// Fused kernels next to everything else that a backward does.

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>

#include "tests/codegen/cpu/near_grads.h"

namespace hindcast::tests {
namespace {

TEST(FusedPlans, HooksCutThem) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({4, 3}, options);
    const auto y = x.sin().mul(x).tanh();
    y.register_hook([](at::Tensor gradient) { return gradient * 2; });
    const auto z = y.cos().mul(y).sigmoid();
    z.retain_grad();
    z.mul(z).sin().sum().backward();
    return std::vector{x.grad(), z.grad()};
  });
}

TEST(FusedPlans, AHookThatChangesTheGradientLeavesThem) {
  int step = 0;
  hindcast::reset();
  const auto program = [&](bool ours) {
    at::manual_seed(1);
    const auto x = near_leaf({4, 3}, at::kFloat);
    const auto y = x.sin().mul(x).tanh();
    y.register_hook([&](at::Tensor gradient) { return step == 2 ? at::Tensor(gradient.t().contiguous().t()) : gradient; });
    std::optional<Guard> guard;
    if (ours) guard.emplace(hindcast::enable(fused_options()));
    y.cos().mul(y).sum().backward();
    return x.grad();
  };
  for (; step < 4; ++step) {
    const at::Tensor stock = program(false);
    EXPECT_TRUE(at::allclose(program(true), stock, 1e-6, 1e-6)) << step;
  }
  EXPECT_GE(hindcast::stats().segment_guard_failures, 1U);
}

TEST(FusedPlans, GradOfSomeInputs) {
  expect_near_grads([](at::TensorOptions options) {
    const auto a = near_leaf({4}, options), b = near_leaf({4}, options);
    const auto loss = (a.sin() * b).tanh().mul(a).sum();
    return torch::autograd::grad({loss}, {a, b});
  });
}

TEST(FusedPlans, OneCompileServesEverySize) {
  hindcast::reset();
  const auto guard = hindcast::enable(fused_options());
  const auto run = [](int64_t batch) {
    const auto x = at::linspace(-1, 1, batch * 3).view({batch, 3}).set_requires_grad(true);
    x.sin().mul(x).tanh().sum().backward();
    return std::pair(x.detach(), x.grad());
  };
  for (const int64_t batch : {4, 6, 9, 100, 1, 7}) {
    const auto [x, gradient] = run(batch);
    const auto tanh = (x.sin() * x).tanh();
    EXPECT_TRUE(at::allclose(gradient, (1 - tanh * tanh) * (x.cos() * x + x.sin()), 1e-5, 1e-6)) << batch;
  }
  EXPECT_LE(hindcast::stats().unique_graphs, 3U);  // static, dynamic, and a batch of 1
}

TEST(FusedPlans, AChangedScalarNeedsNoNewKernel) {
  hindcast::reset();
  const auto guard = hindcast::enable(fused_options());
  for (const double scale : {0.5, 0.25, 0.125, 3.0}) {
    const auto x = at::ones({4}).set_requires_grad(true);
    x.mul(scale).sin().mul(2).sum().backward();
    EXPECT_NEAR(x.grad()[0].item<float>(), 2 * scale * std::cos(scale), 1e-5);
  }
}

TEST(FusedPlans, DeterministicLeavesAllToATen) {
  hindcast::reset();
  Options options = fused_options();
  options.deterministic = true;
  const auto guard = hindcast::enable(options);
  at::ones({4}).set_requires_grad(true).mul(2).tanh().sum().backward();
  EXPECT_EQ(hindcast::stats().fused_graphs, 0U);
}

TEST(FusedPlans, VerifyComparesEveryKernelFirst) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  for (const int64_t batch : {3, 5, 6}) {
    const auto x = at::randn({batch, 4}).set_requires_grad(true), w = at::randn({4, 4}).set_requires_grad(true);
    at::mm(x.sin().mul(x), w).tanh().mul(0.3).sigmoid().sum().backward();
  }
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().fused_graphs, 2U);
}

std::atomic<int> whole_gradients{0};
std::unique_ptr<at::ObserverContext> count_whole_gradients(const at::RecordFunction& call) {
  whole_gradients += std::string_view(call.name()) == "aten::select_backward";
  return nullptr;
}

// Each of two steps has a gradient of all three; the passes leave one.
TEST(FusedPlans, WhatPassesLeaveOutIsNotMadeWhereThereIsNoKernelEither) {
  const auto x = near_leaf({3, 4, 4}, at::kBFloat16);  // products in this type are ATen's
  const auto backward = [&] {
    const auto steps = x.flip(0);
    const auto product = steps.select(0, 0).mm(steps.select(0, 1));
    product.backward(at::ones_like(product));
  };
  backward();
  const at::Tensor expected = x.grad().clone();
  hindcast::reset();
  const auto guard = hindcast::enable(fused_options());
  x.mutable_grad().reset();
  backward();
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(count_whole_gradients));
  x.mutable_grad().reset();
  backward();
  at::removeCallback(handle);
  EXPECT_EQ(hindcast::stats().hits, 1U);
  EXPECT_EQ(hindcast::stats().fused_graphs, 0U);
  EXPECT_EQ(whole_gradients, 1);
  EXPECT_TRUE(at::equal(x.grad(), expected));
}

TEST(FusedPlans, AreNotMadeWhereAlgorithmsAreDeterministic) {
  hindcast::reset();
  const bool before = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  {
    const auto guard = hindcast::enable(fused_options());
    at::ones({4}).set_requires_grad(true).sin().tanh().sum().backward();
  }
  hindcast::wait();
  at::globalContext().setDeterministicAlgorithms(before, /*warn_only=*/false);
  EXPECT_EQ(hindcast::stats().fused_graphs, 0U);
}

}  // namespace
}  // namespace hindcast::tests
