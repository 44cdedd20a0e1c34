// Objects that are made on first use, by threads and across forks.

#include "base/fork.h"

#include "tests/support/in_child.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace hindcast::base {
namespace {

constexpr int kObjects = 64, kThreads = 4, kForks = 50;

/// Enrolls a lock and allocates, as most objects of the library do.
struct Object {
  Object() { ++made; }
  ForkSafe<std::mutex> mutex{ForkRank::Leaf};
  std::vector<int> numbers = std::vector<int>(1000, 1);
  static inline std::atomic<int> made = 0;
};

struct Objects {
  MadeOnce<Object> all[kObjects];
  int sum() {
    int sum = 0;
    for (MadeOnce<Object>& each : all) {
      const std::lock_guard lock(each.get().mutex);
      sum += each.get().numbers.back();
    }
    return sum;
  }
};

TEST(MadeOnce, ThreadsGetTheSameObject) {
  const int before = Object::made;
  const auto objects = std::make_unique<Objects>();
  std::atomic<int> sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { sum += objects->sum(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, kThreads * kObjects);
  EXPECT_EQ(Object::made - before, kObjects);
}

TEST(MadeOnce, IsMadeAgainAfterAnException) {
  MadeOnce<int> number;
  EXPECT_THROW(number.by([]() -> int { throw std::runtime_error("no number"); }), std::runtime_error);
  EXPECT_EQ(number.by([] { return 3; }), 3);
  EXPECT_EQ(number.get(4), 3);
}

TEST(MadeOnce, MayNeedAnother) {
  MadeOnce<int> one, other;
  EXPECT_EQ(one.by([&] { return other.get(2) + 1; }), 3);
}

#if !defined(__SANITIZE_THREAD__)  // it supports no threads in a child
// With function-local `static` objects, some children would wait for ever for a thread of the parent.
TEST(MadeOnce, AChildOfAForkCanUseWhatThreadsOfItsParentMake) {
  for (int i = 0; i < kForks; ++i) {
    const auto objects = std::make_unique<Objects>();
    std::atomic<bool> starts = false;
    std::thread maker([&] {
      starts = true;
      objects->sum();
    });
    while (!starts) std::this_thread::yield();
    EXPECT_EQ(tests::in_child([&] { return objects->sum() == kObjects ? 0 : 1; }), 0);
    maker.join();
  }
}
#endif

}  // namespace
}  // namespace hindcast::base
