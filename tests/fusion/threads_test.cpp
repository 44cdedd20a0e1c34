// Fused plans that are made while backwards run.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "engine/hindcast.h"

namespace hindcast::tests {
namespace {

Options in_background() {
  Options options;
  options.compiler = compilers::fused();
  return options;
}

TEST(FusedPlans, AreMadeInTheBackground) {
  hindcast::reset();
  const auto guard = hindcast::enable(in_background());
  const auto step = [] {
    const auto x = at::ones({4}).set_requires_grad(true);
    x.sin().mul(x).tanh().sum().backward();
    return x.grad();
  };
  const auto first = step();
  hindcast::wait();
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
  EXPECT_TRUE(at::allclose(step(), first));
}

TEST(FusedPlans, ManyThreadsAtOnce) {
  hindcast::reset();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto guard = hindcast::enable(in_background());
      for (int step = 0; step < 50; ++step) {
        const auto x = at::ones({4 + step % 3}).set_requires_grad(true);
        x.sin().mul(x).tanh().sum().backward();
        const float tanh = std::tanh(std::sin(1.f));
        const float expected = (1 - tanh * tanh) * (std::cos(1.f) + std::sin(1.f));
        if (!at::allclose(x.grad(), at::full_like(x, expected))) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  hindcast::wait();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hindcast::tests
