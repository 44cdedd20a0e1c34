// Threads: a guard belongs to its thread, and several threads may run backwards at once, on leaves or on whole graphs that they share.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "tests/support/programs.h"

namespace hindcast::tests::threads_test {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 50;

/// Runs `body(thread)` on four threads that start together; rethrows what one of them threw.
void on_four_threads(const std::function<void(int)>& body) {
  std::atomic<int> waiting{kThreads};
  std::vector<std::exception_ptr> errors(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) {
        std::this_thread::yield();
      }
      try {
        body(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// Whole numbers below 2^24: a float sum of them is exact, in whatever order threads add.
void expect_exact(const at::Tensor& grad, double value) {
  EXPECT_TRUE(at::equal(grad, at::full_like(grad, value))) << "expected " << value << " everywhere, found\n" << grad;
}

TEST(Threads, BackwardsOnSharedLeavesGiveTheExactSum) {
  const auto x = at::ones({4, 4}).set_requires_grad(true), w = at::full({4, 4}, 2.0).set_requires_grad(true);
  on_four_threads([&](int thread) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      (x * w * (thread + 1)).sum().backward();
    }
  });
  expect_exact(x.grad(), 2 * kSteps * (1 + 2 + 3 + 4));
  expect_exact(w.grad(), kSteps * (1 + 2 + 3 + 4));
}

TEST(Threads, StockAndHindcastMayShareLeaves) {
  const auto x = at::ones({4, 4}).set_requires_grad(true), w = at::full({4, 4}, 2.0).set_requires_grad(true);
  on_four_threads([&](int thread) {
    std::optional<Guard> guard;
    if (thread % 2 == 0) guard.emplace(hindcast::enable());
    for (int step = 0; step < kSteps; ++step) {
      (x * w).sum().backward();
    }
  });
  expect_exact(x.grad(), 2 * kSteps * kThreads);
  expect_exact(w.grad(), kSteps * kThreads);
}

TEST(Threads, BackwardsOnOneSharedGraph) {
  const auto x = at::ones({8}).set_requires_grad(true);
  const auto loss = ((x * 3) * (x * 2 + 1)).sum();  // slope at 1: 6 * 2 + 3
  on_four_threads([&](int) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      loss.backward({}, /*retain_graph=*/true);
    }
  });
  expect_exact(x.grad(), 15.0 * kSteps * kThreads);
}

TEST(Threads, BackwardsOnOneSharedGraphWithAWriteToAView) {
  const auto x = at::ones({8}).set_requires_grad(true);
  auto base = x * 3;
  base.slice(0, 0, 4).mul_(x.slice(0, 4, 8));
  const auto loss = (base * 2).sum();
  on_four_threads([&](int) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      loss.backward({}, /*retain_graph=*/true);
    }
  });
  expect_exact(x.grad().slice(0, 0, 4), 6.0 * kSteps * kThreads);
  expect_exact(x.grad().slice(0, 4, 8), 12.0 * kSteps * kThreads);
}

TEST(Threads, GraphsThatShareAPieceBuiltBefore) {
  const auto x = at::ones({8}).set_requires_grad(true);
  const auto shared = x * 3 * x;
  on_four_threads([&](int thread) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      (shared * (thread + 1)).sum().backward({}, /*retain_graph=*/true);
    }
  });
  expect_exact(x.grad(), 6.0 * kSteps * (1 + 2 + 3 + 4));
}

TEST(Threads, ManyShapesAndStructuresAtOnce) {
  hindcast::reset();
  const auto w = at::ones({3, 3}).set_requires_grad(true);
  std::atomic<int64_t> rows_seen{0};
  on_four_threads([&](int thread) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      const int64_t rows = 1 + (step + thread) % 5;
      auto y = at::ones({rows, 3}).mm(w);
      for (int depth = 0; depth < step % 3; ++depth) {
        y = y + 1;
      }
      y.sum().backward();
      rows_seen += rows;
    }
  });
  expect_exact(w.grad(), static_cast<double>(rows_seen));
}

TEST(Threads, HooksOfSharedLeavesRunOnTheThreadOfTheirBackward) {
  const auto x = at::ones({4}).set_requires_grad(true);
  static thread_local int calls = 0;
  x.register_hook([](at::Tensor grad) {
    ++calls;
    return grad * 2;
  });
  on_four_threads([&](int) {
    const auto guard = hindcast::enable();
    calls = 0;
    for (int step = 0; step < kSteps; ++step) {
      (x * 1).sum().backward();
    }
    EXPECT_EQ(calls, kSteps);
  });
  expect_exact(x.grad(), 2.0 * kSteps * kThreads);
}

TEST(Threads, ExceptionOnOneLeavesTheOthersAlone) {
  const auto x = at::ones({4}).set_requires_grad(true);
  on_four_threads([&](int thread) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      const auto y = x * 2;
      if (thread == 0) y.register_hook([](at::Tensor) { throw std::runtime_error("thread 0"); });
      if (thread == 0) {
        EXPECT_THROW(y.sum().backward(), std::runtime_error);
      } else {
        y.sum().backward();
      }
      EXPECT_TRUE(hindcast::active());
    }
  });
  expect_exact(x.grad(), 2.0 * kSteps * (kThreads - 1));
}

TEST(Threads, ResetWhileOthersRun) {
  const auto x = at::ones({4}).set_requires_grad(true);
  on_four_threads([&](int thread) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      if (thread == 0 && step % 5 == 0) hindcast::reset();
      (x * 3).sum().backward();
    }
  });
  expect_exact(x.grad(), 3.0 * kSteps * kThreads);
}

TEST(Threads, EnableAndDisableWhileOthersRun) {
  const auto x = at::ones({4}).set_requires_grad(true);
  on_four_threads([&](int) {
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_FALSE(hindcast::active());
      {
        const auto guard = hindcast::enable();
        EXPECT_TRUE(hindcast::active());
        (x * 3).sum().backward();
      }
      (x * 3).sum().backward();
    }
  });
  expect_exact(x.grad(), 6.0 * kSteps * kThreads);
}

TEST(Threads, StatsAndReportMayBeReadAtAnyTime) {
  hindcast::reset();
  const auto x = at::ones({4}).set_requires_grad(true);
  on_four_threads([&](int thread) {
    const auto guard = hindcast::enable();
    for (int step = 0; step < kSteps; ++step) {
      if (thread == 0) {
        EXPECT_LE(hindcast::stats().backwards, 3U * kSteps);
        EXPECT_FALSE(hindcast::report().empty());
      } else {
        (x * (step % 7)).sum().backward();
      }
    }
  });
}

TEST(Guard, ConcernsItsOwnThreadOnly) {
  hindcast::reset();
  const auto guard = hindcast::enable();
  std::thread([] {
    EXPECT_FALSE(hindcast::active());
    leaf({3}).sin().sum().backward();
    EXPECT_EQ(hindcast::stats().backwards, 0U);
  }).join();
  EXPECT_TRUE(hindcast::active());
  leaf({3}).sin().sum().backward();
  EXPECT_EQ(hindcast::stats().backwards, 1U);
}

TEST(Guard, NestsAndRestores) {
  EXPECT_FALSE(hindcast::active());
  {
    const auto outer = hindcast::enable();
    {
      const auto inner = hindcast::enable();
      EXPECT_TRUE(hindcast::active());
    }
    EXPECT_TRUE(hindcast::active());
  }
  EXPECT_FALSE(hindcast::active());
}

TEST(Guard, InnermostOptionsWin) {
  hindcast::reset();
  std::ostringstream outer_text, inner_text;
  const auto backward = [] { leaf({3}).sin().sum().backward(); };
  const auto outer = hindcast::enable(hindcast::compilers::print(outer_text));
  {
    const auto inner = hindcast::enable(hindcast::compilers::print(inner_text));
    backward();
    EXPECT_FALSE(inner_text.str().empty());
    EXPECT_TRUE(outer_text.str().empty());
  }
  backward();
  EXPECT_FALSE(outer_text.str().empty());
}

TEST(Guard, IsRestoredWhenAnExceptionLeavesItsScope) {
  try {
    const auto guard = hindcast::enable();
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(hindcast::active());
  }
}

TEST(Guard, MovesToItsNewOwner) {
  auto guard = std::make_unique<Guard>(hindcast::enable());
  EXPECT_TRUE(hindcast::active());
  guard.reset();
  EXPECT_FALSE(hindcast::active());
}

TEST(Guard, WithoutOneTheStockEngineRuns) {
  hindcast::reset();
  leaf({3}).sin().sum().backward();
  EXPECT_EQ(hindcast::stats().backwards, 0U);
}

TEST(Guard, IsAsBeforeAfterAHookMadeAndDroppedOne) {
  hindcast::reset();
  const auto guard = hindcast::enable();
  const auto x = leaf({3});
  x.register_hook([](at::Tensor) { const auto inner = hindcast::enable(); });
  x.sin().sum().backward();
  EXPECT_TRUE(hindcast::active());
  leaf({3}).sin().sum().backward();
  EXPECT_EQ(hindcast::stats().backwards, 2U);
}

}  // namespace
}  // namespace hindcast::tests::threads_test
