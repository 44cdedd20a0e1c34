// Options::cache_size bounds the structures that are kept and evicts the least recently used; reset() forgets all.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <initializer_list>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

class CacheSize : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  /// Runs backwards of chains of that many `sin`: each length is a structure of its own.
  static void backwards(std::initializer_list<int> lengths) {
    for (const int length : lengths) {
      const auto x = at::ones({3}).set_requires_grad(true);
      auto y = x;
      for (int i = 0; i < length; ++i) y = y.sin();
      y.sum().backward();
    }
  }
  static Options two_structures() {
    Options options;
    options.cache_size = 2;
    return options;
  }
};

TEST_F(CacheSize, TheLeastRecentlyUsedIsCapturedAgain) {
  const auto guard = hindcast::enable(two_structures());
  backwards({1, 2, 3});
  EXPECT_EQ(hindcast::stats().unique_graphs, 3U);
  backwards({3, 2});
  EXPECT_EQ(hindcast::stats().hits, 2U);
  backwards({1});
  EXPECT_EQ(hindcast::stats().unique_graphs, 4U) << "the first structure was to go when the third came";
}

TEST_F(CacheSize, AHitIsAUse) {
  const auto guard = hindcast::enable(two_structures());
  backwards({1, 2, 1, 3, 1});
  EXPECT_EQ(hindcast::stats().unique_graphs, 3U);
  EXPECT_EQ(hindcast::stats().hits, 2U);
  backwards({2});
  EXPECT_EQ(hindcast::stats().unique_graphs, 4U);
}

TEST_F(CacheSize, CountsStructuresNotTheirVariants) {
  const auto guard = hindcast::enable(two_structures());
  const auto backward = [](int64_t n) { at::ones({n}).set_requires_grad(true).exp().sum().backward(); };
  for (const int64_t n : {3, 5, 7}) backward(n);
  backwards({1});
  for (const int64_t n : {3, 5, 7}) backward(n);
  EXPECT_EQ(hindcast::stats().unique_graphs, 3U);
}

TEST_F(CacheSize, AnEvictedStructureSaysThatItIsGone) {
  Options options;
  options.cache_size = 1;
  const auto guard = hindcast::enable(options);
  backwards({1, 2, 1});
  EXPECT_EQ(hindcast::stats().misses, 3U);
  EXPECT_EQ(hindcast::stats().hits, 0U);
}

TEST_F(CacheSize, ResetForgetsGraphsAndCounters) {
  const auto guard = hindcast::enable();
  backwards({1, 1});
  hindcast::reset();
  Stats stats = hindcast::stats();
  EXPECT_EQ(stats.backwards + stats.hits + stats.misses + stats.unique_graphs + stats.nodes, 0U);
  EXPECT_TRUE(stats.misses_by_reason.empty());
  backwards({1, 1});
  stats = hindcast::stats();
  EXPECT_EQ(stats.unique_graphs, 1U);
  EXPECT_EQ(stats.hits, 1U);
}

TEST_F(CacheSize, ResetDuringABackwardLetsItEnd) {
  const auto guard = hindcast::enable();
  for (int step = 0; step < 3; ++step) {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto y = x.sin();
    y.register_hook([](const at::Tensor&) { hindcast::reset(); });
    y.sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  }
}

}  // namespace
}  // namespace hindcast::tests
