// Fused plans that are compiled while backwards run, and plans that run concurrently.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "hindcast/hindcast.h"

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

// Two threads add to one leaf: no sum is lost.
TEST(LeafGrads, FromTwoThreads) {
  hindcast::reset();
  const auto x = at::ones({300, 30}).requires_grad_(), y = at::ones({300, 30}).requires_grad_();
  x.mutable_grad() = at::zeros({300, 30});
  y.mutable_grad() = at::zeros({300, 30});
  constexpr int kSteps = 50;
  const auto work = [&](bool turned) {
    for (int i = 0; i < kSteps; ++i) {
      const auto sum = turned ? y + x : x + y;
      const auto loss = (sum * 0.5).clamp(0, 2).mul(4).sum();
      Options options = in_background();
      options.async = false;
      const auto guard = hindcast::enable(options);
      loss.backward();
    }
  };
  std::thread other(work, true);
  work(false);
  other.join();
  EXPECT_TRUE(x.grad().eq(2 * 2 * kSteps).all().item<bool>());
  EXPECT_TRUE(y.grad().eq(2 * 2 * kSteps).all().item<bool>());
}

}  // namespace
}  // namespace hindcast::tests
