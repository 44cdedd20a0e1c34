// Several threads call a function, some of whose calls are left to it meanwhile.

#include <hindcast/aot.h>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <atomic>
#include <thread>
#include <vector>

#include "hindcast/detail/back_off_policy.h"

namespace hindcast::tests::back_off_policy_threads_test {
namespace {

constexpr int kThreads = 4, kCalls = 400;

template <class Body>
void on_threads(const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

TEST(CallsToComeOfThreads, AreLeftOnceEach) {
  detail::BackOffCounter calls;
  calls.are(1000);
  std::atomic<int> left = 0;
  on_threads([&] {
    for (int i = 0; i < kCalls; ++i) left += calls.leaves_this_one();
  });
  EXPECT_EQ(left, 1000);
  EXPECT_EQ(calls.left(), 1000U);
  EXPECT_FALSE(calls.is_timed());
}

TEST(LeftCallsOfThreads, AreRightAndCounted) {
  const auto eager = aot_function([](at::Tensor x) { return x.masked_select(x > 0); });
  const auto one_op = aot_function([](at::Tensor x) { return x + 1; });
  const at::Tensor x = at::randn({8}), selected = x.masked_select(x > 0), more = x + 1;
  std::atomic<int> wrong = 0;
  on_threads([&] {
    for (int i = 0; i < kCalls; ++i) wrong += !at::equal(eager(x), selected) + !at::equal(one_op(x), more);
  });
  EXPECT_EQ(wrong, 0);
  for (const AotStats& stats : {eager.stats(), one_op.stats()}) {
    EXPECT_EQ(stats.calls, static_cast<uint64_t>(kThreads * kCalls));
    EXPECT_GE(stats.hits + stats.traces + stats.eager, stats.calls) << "a trace that is refused ran eagerly, too";
    EXPECT_GT(stats.left, 0U);
  }
}

}  // namespace
}  // namespace hindcast::tests::back_off_policy_threads_test
