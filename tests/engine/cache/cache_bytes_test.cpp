// Options::cache_bytes bounds the memory of captures; stats() counts it.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <malloc.h>
#define HC_MALLOC_IS_KNOWN 1
#endif

namespace hindcast::tests {
namespace {

class CacheBytes : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  static void backward(int length) {
    const auto x = at::ones({3}).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < length; ++i) y = i % 3 == 0 ? y.sin() : y * 0.5;
    y.sum().backward();
  }
  static Options options(size_t bytes) {
    Options options;
    options.cache_bytes = bytes;
    return options;
  }
};

TEST_F(CacheBytes, TheLeastRecentlyUsedGo) {
  constexpr size_t kBytes = size_t{1} << 20;
  const auto guard = hindcast::enable(options(kBytes));
  for (int length = 1; length < 150; ++length) {
    backward(length);
    backward(7);
    ASSERT_LE(hindcast::stats().kept_bytes, kBytes) << length;
  }
  const auto stats = hindcast::stats();
  EXPECT_GT(stats.evicted_graphs, 20U);
  EXPECT_GT(stats.kept_bytes, kBytes / 2);
  EXPECT_EQ(stats.kept_graphs, stats.unique_graphs - stats.evicted_graphs);
  backward(149);
  backward(7);
  EXPECT_EQ(hindcast::stats().hits, stats.hits + 2);
  backward(1);
  EXPECT_EQ(hindcast::stats().misses, stats.misses + 1);
}

TEST_F(CacheBytes, ResetGivesAllBack) {
  const auto guard = hindcast::enable();
  for (int length = 1; length < 20; ++length) backward(length);
  EXPECT_EQ(hindcast::stats().kept_graphs, 19U);
  hindcast::reset();
  EXPECT_EQ(hindcast::stats().kept_graphs, 0U);
  EXPECT_EQ(hindcast::stats().kept_bytes, 0U);
}

TEST_F(CacheBytes, AGraphThatIsLargerIsNotKept) {
  const LogCapture logs("");
  const auto guard = hindcast::enable(options(10'000));
  for (int i = 0; i < 3; ++i) backward(100);
  EXPECT_EQ(hindcast::stats().kept_graphs, 0U);
  EXPECT_EQ(hindcast::stats().misses, 3U);
  EXPECT_GE(logs.count("Options::cache_bytes"), 1U);
}

// A hook of the structure returns something else at times: the captures behind the hook are evicted, the common one stays.
TEST_F(CacheBytes, WhatIsUsedOfAStructureStays) {
  constexpr size_t kBytes = 600'000;
  constexpr int kHooks = 40;
  const auto guard = hindcast::enable(options(kBytes));
  int deviates = -1;
  const auto step = [&](int hook) {
    deviates = hook;
    const auto x = at::ones({4, 4}).set_requires_grad(true);
    auto y = x;
    for (int i = 0; i < kHooks; ++i) {
      y = y.sin();
      y.register_hook([&deviates, i](const at::Tensor& gradient) { return i == deviates ? gradient.t().contiguous().t() : gradient; });
    }
    y.sum().backward();
  };
  step(-1);
  for (int round = 0; round < 2; ++round) {
    for (int hook = 0; hook < kHooks; ++hook) {
      step(hook);
      step(-1);
      ASSERT_LE(hindcast::stats().kept_bytes, kBytes);
    }
  }
  EXPECT_GT(hindcast::stats().evicted_graphs, 0U);
  EXPECT_GE(hindcast::stats().hits, 2U * kHooks);
}

#ifdef HC_MALLOC_IS_KNOWN
TEST_F(CacheBytes, AreCountedAboutRight) {
  const auto guard = hindcast::enable();
  backward(400);
  backward(400);
  const auto used = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used(), counted = hindcast::stats().kept_bytes;
  for (int length = 300; length < 320; ++length) backward(length);
  const auto grown = static_cast<double>(used() - before), count = static_cast<double>(hindcast::stats().kept_bytes - counted);
  EXPECT_GT(count, 0.8 * grown);
  EXPECT_LT(count, 1.4 * grown);
  RecordProperty("bytes_a_node", std::to_string(grown / (20 * 311.5)));
}
#endif

}  // namespace
}  // namespace hindcast::tests
