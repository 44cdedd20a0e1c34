// enable_process(): threads without their own guard, later threads, forks, and threads that run while it is created and destroyed.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/support/in_child.h"

namespace hindcast::tests::process_guard_test {
namespace {

/// Whether a backward here is right and was taken over. No other thread may run one meanwhile.
bool is_taken_over() {
  const uint64_t before = hindcast::stats().backwards;
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  x.sin().sum().backward();
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  const bool taken_over = hindcast::stats().backwards == before + 1;
  EXPECT_EQ(hindcast::active(), taken_over);
  return taken_over;
}

template <class Body>
void on_a_thread(const Body& body) {
  std::thread(body).join();
}

Options eager(bool enabled = true) {
  Options options;
  options.compiler = compilers::eager();
  options.back_off = false;
  options.enabled = enabled;
  return options;
}

TEST(ProcessGuardThreads, AreThoseThatAreThereAndLaterOnes) {
  std::atomic<int> turn = 0;
  const auto wait_for = [&turn](int value) {
    for (int now = turn; now != value; now = turn) turn.wait(now);
  };
  const auto give_turn = [&turn](int value) {
    turn = value;
    turn.notify_all();
  };
  std::thread early([&] {
    EXPECT_FALSE(is_taken_over());
    give_turn(1);
    wait_for(2);
    EXPECT_TRUE(is_taken_over());
    give_turn(3);
    wait_for(4);
    EXPECT_FALSE(is_taken_over());
  });
  wait_for(1);
  {
    const ProcessGuard guard = hindcast::enable_process(eager());
    EXPECT_TRUE(is_taken_over());
    give_turn(2);
    wait_for(3);
    on_a_thread([] { EXPECT_TRUE(is_taken_over()); });
  }
  give_turn(4);
  early.join();
  on_a_thread([] { EXPECT_FALSE(is_taken_over()); });
  EXPECT_FALSE(is_taken_over());
}

TEST(ProcessGuardThreads, AThreadsOwnGuardWins) {
  const ProcessGuard guard = hindcast::enable_process(eager());
  on_a_thread([] {
    {
      const Guard paused = hindcast::enable(eager(/*enabled=*/false));
      EXPECT_FALSE(is_taken_over());
      const ProcessGuard newer = hindcast::enable_process(eager());
      EXPECT_FALSE(is_taken_over()) << "a thread that paused stays paused";
    }
    EXPECT_TRUE(is_taken_over());
  });
  const ProcessGuard off = hindcast::enable_process(eager(/*enabled=*/false));
  EXPECT_FALSE(is_taken_over());
  const Guard own = hindcast::enable(eager());
  EXPECT_TRUE(is_taken_over());
}

TEST(ProcessGuardThreads, TheNewestThatLivesWins) {
  std::optional<ProcessGuard> first = hindcast::enable_process(eager()), off = hindcast::enable_process(eager(/*enabled=*/false));
  EXPECT_FALSE(is_taken_over());
  ProcessGuard last = hindcast::enable_process(eager());
  first.reset();
  EXPECT_TRUE(is_taken_over());
  { const ProcessGuard moved = std::move(last); }
  EXPECT_FALSE(is_taken_over());
  off.reset();
  EXPECT_FALSE(hindcast::active());
}

TEST(ProcessGuardThreads, MayEndOnAnotherThread) {
  auto guard = std::make_unique<ProcessGuard>(hindcast::enable_process(eager()));
  on_a_thread([&] { guard.reset(); });
  EXPECT_FALSE(is_taken_over());
}

TEST(ProcessGuardThreads, ComesAndGoesWhileOthersRunBackwards) {
  constexpr int kThreads = 3, kSwitches = 2000;
  std::atomic<bool> stops = false;
  std::atomic<int64_t> steps = 0;
  const auto shared = at::ones({8}).set_requires_grad(true);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      do {
        const auto own = at::full({8}, 2.0).set_requires_grad(true);
        (shared * own * own).sum().backward();
        EXPECT_TRUE(own.grad().equal(at::full({8}, 4.0)));
        ++steps;
      } while (!stops);
    });
  }
  for (int i = 0; i < kSwitches; ++i) {
    Options options = eager();
    options.limit = static_cast<size_t>(1 + i % 3);
    const ProcessGuard guard = hindcast::enable_process(options);
    const auto here = at::ones({2}).set_requires_grad(true);
    (here * 3).sum().backward();
    EXPECT_TRUE(here.grad().equal(at::full({2}, 3.0)));
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(shared.grad().equal(at::full({8}, 4.0 * static_cast<double>(steps))));
  EXPECT_FALSE(is_taken_over());
}

TEST(ProcessGuardThreads, AForksChildHasIt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer knows no threads that a child starts";
#endif
  std::optional<ProcessGuard> guard = hindcast::enable_process(eager());
  EXPECT_TRUE(is_taken_over());
  EXPECT_EQ(in_child([&] {
              bool is_right = is_taken_over();
              on_a_thread([&] { is_right = is_right && is_taken_over(); });
              guard.reset();
              return is_right && !is_taken_over() ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is_taken_over()) << "what the child ends ends in the child";
}

TEST(ProcessGuardThreads, RefusesWhatEnableRefuses) {
  Options options;
  options.limit = 0;
  EXPECT_THROW((void)hindcast::enable_process(options), std::invalid_argument);
  EXPECT_FALSE(hindcast::active());
}

}  // namespace
}  // namespace hindcast::tests::process_guard_test
