// Checkpoints of several threads at once.

#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "tests/engine/saved/with_and_without.h"

namespace hindcast::tests::threads_test {
namespace {

at::Tensor layer(const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh().exp(); }

TEST(CheckpointThreads, EachWithItsOwnGraph) {
  const auto x = leaf({8, 8}), w = leaf({8, 8});
  layer(layer(x, w), w).sum().backward();
  const std::vector expected{x.grad().clone(), w.grad().clone()};
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::optional<Guard> guard;
      if (i % 2 == 0) guard.emplace(hindcast::enable());
      for (int step = 0; step < 20; ++step) {
        const auto a = x.detach().requires_grad_(), b = w.detach().requires_grad_();
        checkpoint(layer, checkpoint(layer, a, b), b).sum().backward();
        if (!a.grad().equal(expected[0]) || !b.grad().equal(expected[1])) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CheckpointThreads, AllWithTheSameGraph) {
  const auto x = leaf({8, 8}), w = leaf({8, 8});
  const auto expected = torch::autograd::grad({layer(layer(x, w), w).sum()}, {x, w});
  const auto loss = checkpoint(layer, checkpoint(layer, x, w), w).sum();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::optional<Guard> guard;
      if (i % 2 == 0) guard.emplace(hindcast::enable());
      for (int step = 0; step < 20; ++step) {
        const auto given = torch::autograd::grad({loss}, {x, w}, {}, /*retain_graph=*/true);
        if (!given[0].equal(expected[0]) || !given[1].equal(expected[1])) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CheckpointThreads, TheBackwardOfAnotherThread) {
  const auto x = leaf({8, 8}), w = leaf({8, 8});
  at::manual_seed(1);
  const auto loss =
      checkpoint([](const at::Tensor& a, const at::Tensor& b) { return at::dropout(layer(a, b), 0.5, true).exp(); }, x, w).sum();
  std::thread([&] { loss.backward(); }).join();
  const std::vector given{x.grad().clone(), w.grad().clone()};
  x.mutable_grad() = w.mutable_grad() = at::Tensor();
  at::manual_seed(1);
  at::dropout(layer(x, w), 0.5, true).exp().sum().backward();
  EXPECT_TRUE(given[0].equal(x.grad()) && given[1].equal(w.grad()));
}

}  // namespace
}  // namespace hindcast::tests::threads_test
