// Two threads accumulate gradients into one leaf, each through its own graph and on its own stream.

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <array>
#include <optional>
#include <thread>

#include "hindcast/hindcast.h"
#include "tests/support/fake_device.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::threads_test {
namespace {

constexpr int kThreads = 2, kSteps = 20;

/// Returns the leaf's gradient. `is_ours`: each thread has a guard.
at::Tensor train(bool is_ours) {
  synchronize_fake_device();
  take_unordered();
  const auto x = leaf(1, fake());
  std::array<std::array<at::Tensor, kSteps>, kThreads> losses;
  for (int i = 0; i < kThreads; ++i) {
    order(stream(0), stream(i + 1));
    const c10::StreamGuard guard(stream(i + 1));
    for (at::Tensor& loss : losses[static_cast<size_t>(i)]) loss = (x * (i + 1)).relu().sum();
  }
  std::vector<std::thread> threads;
  for (auto& own : losses) {
    threads.emplace_back([&own, is_ours] {
      std::optional<Guard> guard;
      if (is_ours) guard.emplace(enable(compilers::eager()));
      for (at::Tensor& loss : own) loss.backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(take_unordered(), std::vector<std::string>());
  return to_cpu(x.grad());
}

TEST(StreamsOfThreads, AddToOneLeaf) {
  install_fake_device();
  const at::Tensor stock = train(false);
  reset();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first_difference(stock, train(true)), "");
  EXPECT_EQ(stats().backwards, static_cast<uint64_t>(3 * kThreads * kSteps));
  EXPECT_TRUE(stats().fallbacks_by_reason.empty());
}

}  // namespace
}  // namespace hindcast::tests::threads_test
