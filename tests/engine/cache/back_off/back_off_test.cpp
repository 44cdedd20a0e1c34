// Options::back_off: structures that do not come back are left to the stock engine.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/cache/payoff.h"
#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

constexpr uint64_t kCredit = 64;  // captures that a program may make in vain

class BackOff : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }
  void TearDown() override {
    // The next test starts without a pause: a hit ends every pause of this thread.
    hindcast::reset();
    const auto guard = hindcast::enable();
    for (int i = 0; i < 40; ++i) backward(1, 3);
  }

  /// A chain of 16 operators, chosen by the bits of `structure`; its gradient.
  static at::Tensor backward(uint64_t structure, int length = 16) {
    const auto x = at::full({4}, 0.5).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < length; ++i) y = structure >> i & 1 ? y.sin() : y.tanh();
    y.sum().backward();
    return x.grad();
  }
  static uint64_t left() {
    const auto reasons = hindcast::stats().fallbacks_by_reason;
    const auto found = reasons.find("DoesNotPay");
    return found == reasons.end() ? 0 : found->second;
  }
  static uint64_t hits() { return hindcast::stats().hits; }
};

TEST_F(BackOff, StructuresThatNeverComeBackGoToTheStockEngine) {
  const auto stock = backward(777);
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 1000; ++i) backward(i);
  EXPECT_LE(hindcast::stats().unique_graphs, kCredit);
  EXPECT_GE(left(), 1000 - kCredit);
  EXPECT_TRUE(at::equal(backward(777), stock));
}

// As packed sequences create them, one per set of lengths.
TEST_F(BackOff, LargeStructuresCostMoreOfTheCredit) {
  const auto large = [](uint64_t structure) {
    const auto x = at::full({4}, 0.5).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < 600; ++i) y = structure >> (i % 10) & 1 ? y.sin() : y.tanh();
    y.sum().backward();
    return x.grad();
  };
  const auto stock = large(7);
  const auto guard = hindcast::enable(compilers::eager());
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(large(i).sizes(), at::IntArrayRef({4}));
  EXPECT_LE(hindcast::stats().unique_graphs, kCredit / 4);
  EXPECT_TRUE(at::equal(large(7), stock));
  // A structure that comes back is captured nevertheless.
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (uint64_t i = 0; i < 40; ++i) large(i);
  }
  const uint64_t before = hits();
  for (uint64_t i = 0; i < 40; ++i) large(i);
  EXPECT_EQ(hits(), before + 40) << hindcast::stats();
}

// When they shared one slot, two of them evicted each other, and neither was ever captured.
TEST(Payoff, RemembersStructuresWhoseHashesHaveEqualLowBits) {
  engine::Payoff payoff;
  const auto may_capture = [&](uint64_t high) {
    return payoff.may_capture({.low = 7, .high = high}, payoff.next(), [] { return engine::Payoff::Room(); });
  };
  for (uint64_t i = 0; i < kCredit; ++i) payoff.captured(1);
  for (uint64_t high = 1; high <= 4; ++high) EXPECT_FALSE(may_capture(high)) << "there is no credit, and it was not seen";
  for (uint64_t high = 1; high <= 4; ++high) EXPECT_TRUE(may_capture(high));
  // One more than there are slots: the one seen longest ago is evicted.
  EXPECT_FALSE(may_capture(5));
  EXPECT_TRUE(may_capture(4));
  EXPECT_FALSE(may_capture(1));
}

TEST(Payoff, ADebtAsksForMoreSightings) {
  engine::Payoff payoff;
  const auto sightings_until_captured = [&](uint64_t structure) {
    for (int seen = 0; seen < 20; ++seen) {
      if (payoff.may_capture({.low = 7, .high = structure}, payoff.next(), [] { return engine::Payoff::Room(); })) return seen;
    }
    return -1;
  };
  EXPECT_EQ(sightings_until_captured(1), 0);
  for (int debt = 0; debt < 12; ++debt) {
    for (uint64_t i = 0; i < kCredit; ++i) payoff.captured(1);
    EXPECT_EQ(sightings_until_captured(static_cast<uint64_t>(debt + 2)), std::min(debt + 1, 8));
  }
  for (uint32_t i = 0; i < 64 * kCredit; ++i) payoff.hit(0, 1);
  EXPECT_EQ(sightings_until_captured(100), 0) << "hits have paid";
}

TEST(Pause, HitsThatAreRareDoNotEndIt) {
  engine::Pause pause;
  const auto examined_of = [&](int calls, auto hits) {
    int examined = 0;
    for (int call = 0; call < calls; ++call) {
      if (pause.skips()) continue;
      hits(examined++) ? pause.took_one() : pause.left_one();
    }
    return examined;
  };
  EXPECT_LT(examined_of(1000, [](int i) { return i % 8 == 0; }), 300);
  EXPECT_GT(examined_of(100, [](int) { return true; }), 60) << "it begins to repeat";
  EXPECT_EQ(examined_of(1000, [](int i) { return i % 3 == 0; }), 1000);
}

// One structure that comes back does not pay for all the others.
TEST_F(BackOff, WithCreateGraphToo) {
  const auto slope_of = [](uint64_t structure) {
    const auto x = at::full({4}, 0.5).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < 10; ++i) y = structure >> i & 1 ? y.sin() : y.tanh();
    return torch::autograd::grad({y.sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
  };
  const auto twice = [&](uint64_t structure) { slope_of(structure).pow(2).sum().backward(); };
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 1000; ++i) {
    twice(1023);
    twice(i);
  }
  EXPECT_LE(hindcast::stats().misses, 4 * kCredit) << "two backwards of each";
  EXPECT_GE(left(), 500U);
  EXPECT_GE(hits(), 1500U);
}

TEST_F(BackOff, MostOfThemAreNotEvenLookedAt) {
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 200; ++i) backward(i);
  const auto before = hindcast::stats();
  for (uint64_t i = 200; i < 1000; ++i) backward(i);
  EXPECT_EQ(hindcast::stats().unique_graphs, before.unique_graphs);
  EXPECT_EQ(hindcast::stats().collect_us, before.collect_us) << "only what is taken over counts";
}

TEST_F(BackOff, AResetOnAnyThreadEndsThePause) {
  std::promise<void> is_paused, is_reset;
  const auto pause = [] {
    for (uint64_t i = 0; i < 200; ++i) backward(i);
  };
  const auto guard = hindcast::enable_process();
  std::thread other([&] {
    pause();
    is_paused.set_value();
    is_reset.get_future().wait();
    backward(9999);
  });
  is_paused.get_future().wait();
  pause();
  hindcast::reset();
  backward(7777);
  EXPECT_EQ(hindcast::stats().unique_graphs, 1U) << hindcast::stats();
  is_reset.set_value();
  other.join();
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U) << hindcast::stats();
  EXPECT_EQ(left(), 0U);
}

TEST_F(BackOff, WhatBeginsToRepeatIsCaptured) {
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 500; ++i) backward(i);
  const uint64_t before = hits();
  for (int i = 0; i < 100; ++i) backward(9999);
  EXPECT_GT(hits(), before + 50) << "two looks, 15 calls apart, and the pause that was under way";
}

TEST_F(BackOff, AnotherPhaseOfManyStructuresIsCapturedAgain) {
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 500; ++i) backward(i);
  for (int step = 0; step < 60; ++step) {
    for (uint64_t i = 1000; i < 1010; ++i) backward(i);
  }
  const uint64_t before = hits();
  for (uint64_t i = 1000; i < 1010; ++i) backward(i);
  EXPECT_EQ(hits(), before + 10);
}

// LRU would always evict the structure that comes next.
TEST_F(BackOff, MoreStructuresInTurnThanAreKeptDoNotThrash) {
  Options options;
  options.cache_size = 8;
  const auto guard = hindcast::enable(options);
  const auto turn = [] {
    for (uint64_t i = 0; i < 9; ++i) backward(i);
  };
  for (int i = 0; i < 40; ++i) turn();
  const auto before = hindcast::stats();
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_EQ(hindcast::stats().hits, before.hits + 80);
  EXPECT_EQ(hindcast::stats().unique_graphs, before.unique_graphs);
}

TEST_F(BackOff, OfTwoKindsTheOneThatRepeatsIsAlwaysHit) {
  const auto guard = hindcast::enable();
  backward(3, 5);
  const uint64_t before = hits();
  for (uint64_t i = 0; i < 300; ++i) {
    backward(i);
    backward(3, 5);
  }
  EXPECT_EQ(hits(), before + 300);
  EXPECT_GT(left(), 200U);
}

TEST_F(BackOff, ASizeThatChangesIsNoNewStructure) {
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 200; ++i) backward(i);
  for (int i = 0; i < 40; ++i) backward(1, 7);
  const uint64_t before = hits();
  for (int64_t n = 5; n < 40; ++n) {
    const auto x = at::ones({n}).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < 7; ++i) y = i == 0 ? y.sin() : y.tanh();
    y.sum().backward();
  }
  EXPECT_GE(hits(), before + 30);
}

TEST_F(BackOff, ItIsSaidOnceWithWhatToDo) {
  const LogCapture logs("");
  const auto guard = hindcast::enable();
  for (uint64_t i = 0; i < 300; ++i) backward(i);
  EXPECT_EQ(logs.count("DoesNotPay"), 1U);
  EXPECT_EQ(logs.count("Options::back_off"), 1U);
}

TEST_F(BackOff, IsOffByAnOptionAndWhereEveryGradientIsLookedAt) {
  for (const bool nan_guard : {false, true}) {
    hindcast::reset();
    Options options;
    options.back_off = nan_guard;
    options.nan_guard = nan_guard;
    const auto guard = hindcast::enable(options);
    for (uint64_t i = 0; i < 100; ++i) backward(i);
    EXPECT_EQ(hindcast::stats().unique_graphs, 100U);
  }
}

// A hook deviates in another place each time: the continuation behind it must not be captured each time.
TEST_F(BackOff, ContinuationsThatDoNotComeBackAreNotCaptured) {
  constexpr int kHooks = 100;
  const auto guard = hindcast::enable();
  int deviates = -1;
  const auto step = [&] {
    const auto x = at::ones({4, 4}).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < kHooks; ++i) {
      y = y.sin();
      y.register_hook([&deviates, i](const at::Tensor& gradient) { return i == deviates ? gradient.t().contiguous().t() : gradient; });
    }
    y.sum().backward();
    return x.grad();
  };
  const auto expected = step();
  for (uint32_t i = 0; i < 300; ++i) {
    deviates = static_cast<int>(i * 2654435761U % kHooks);
    ASSERT_TRUE(at::equal(step(), expected));
  }
  EXPECT_LT(hindcast::stats().kept_bytes, size_t{16} << 20);
}

TEST(Payoff, ExceptionsNowAndThenAreNoReason) {
  const auto payoff = std::make_unique<engine::Payoff>();
  const cache::KeyHash structure{1, 2};
  uint64_t now = 0;
  const auto may_capture = [&] { return payoff->may_capture(structure, ++now, [] { return engine::Payoff::Room(); }); };
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 7; ++i) {
      EXPECT_TRUE(may_capture());
      payoff->traced(structure, /*raised=*/true);
    }
    EXPECT_TRUE(may_capture());
    payoff->traced(structure, /*raised=*/round == 2);
  }
  EXPECT_FALSE(may_capture()) << "eight in a row";
}

// The graph contains a number that differs in each step.
TEST_F(BackOff, WhatIsAtItsLimitGoesToTheStockEngine) {
  const auto step = [](int i) {
    const auto x = at::full({4}, 0.5).set_requires_grad(true);
    at::huber_loss(x * 2, at::zeros({4}), at::Reduction::Sum, 1 + 1e-3 * i).backward();
    return x.grad();
  };
  std::vector<at::Tensor> stock;
  for (int i = 0; i < 200; ++i) stock.push_back(step(i));
  LogCapture logs("");
  const auto guard = hindcast::enable();
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(at::equal(step(i), stock[static_cast<size_t>(i)])) << i;
  EXPECT_EQ(hindcast::stats().unique_graphs, 8U) << "Options::limit";
  EXPECT_EQ(hindcast::stats().misses, 9U) << "the ninth says so";
  EXPECT_EQ(left(), 191U);
  EXPECT_EQ(logs.count("limit reached"), 1U) << logs.text();
}

TEST_F(BackOff, WhatFitsACaptureHitsAlsoAtTheLimit) {
  const auto step = [](int i) {
    const auto x = at::full({4}, 0.5).set_requires_grad(true);
    at::huber_loss(x * 2, at::zeros({4}), at::Reduction::Sum, 1 + 1e-3 * i).backward();
  };
  const auto guard = hindcast::enable();
  for (int i = 0; i < 12; ++i) step(i);
  const uint64_t before = hits();
  for (int i = 0; i < 8; ++i) step(i);
  EXPECT_EQ(hits() - before, 8U);
}

TEST_F(BackOff, WhatAHookEndsEachTimeGoesToTheStockEngine) {
  const auto step = [] {
    const auto x = at::full({4}, 0.5).set_requires_grad(true);
    const auto y = x.sin();
    y.register_hook([](const at::Tensor&) -> at::Tensor { throw std::domain_error("far enough"); });
    EXPECT_THROW(y.exp().sum().backward(), std::domain_error);
    return x.grad();
  };
  const auto guard = hindcast::enable();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(step().defined());
  EXPECT_EQ(hindcast::stats().misses, 8U);
  EXPECT_EQ(left(), 92U);
}

}  // namespace
}  // namespace hindcast::tests
