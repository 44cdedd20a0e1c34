// The queue of background jobs.

#include "engine/compile/background.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <future>
#include <memory>
#include <thread>

namespace hindcast::engine {
namespace {

/// Keeps the queue's thread busy until it is destroyed.
class Busy {
 public:
  Busy() {
    run_in_background({.run = [state = state_] {
      state->runs = true;
      state->runs.notify_all();
      state->ends.wait(false);
    }});
    state_->runs.wait(false);
  }
  ~Busy() { end(); }
  void end() {
    state_->ends = true;
    state_->ends.notify_all();
  }

 private:
  struct State {
    std::atomic<bool> runs = false, ends = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(BackgroundThreads, JobsRunInOrder) {
  auto done = std::make_shared<std::string>();
  for (const char letter : {'a', 'b', 'c'}) run_in_background({.run = [done, letter] { *done += letter; }});
  wait_for_background();
  EXPECT_EQ(*done, "abc");
}

TEST(BackgroundThreads, AWaitIncludesWhatJobsAdd) {
  auto done = std::make_shared<std::string>();
  std::promise<void> both_added;
  run_in_background({.run = [done, added = both_added.get_future().share()] {
    added.wait();
    *done += 'a';
    run_in_background({.run = [done] {
      *done += 'c';
      run_in_background({.run = [done] { *done += 'd'; }});
    }});
  }});
  run_in_background({.run = [done] { *done += 'b'; }});
  both_added.set_value();
  wait_for_background();
  EXPECT_EQ(*done, "abcd");
}

// Otherwise a program with many threads could wait forever.
TEST(BackgroundThreads, AWaitDoesNotIncludeWhatOthersAddMeanwhile) {
  struct State {
    std::atomic<bool> ends = false;
    std::atomic<int> waiting = 0;
  };
  const auto state = std::make_shared<State>();
  const auto add = [state] {
    ++state->waiting;
    run_in_background({.run = [state] { --state->waiting; }});
  };
  Busy busy;  // so that jobs are waiting when the wait begins
  add();
  std::thread other([&] {
    while (!state->ends) {
      if (state->waiting < 100) add();
    }
  });
  busy.end();
  wait_for_background();
  state->ends = true;
  other.join();
  wait_for_background();
  EXPECT_EQ(state->waiting, 0);
}

TEST(BackgroundThreads, WhatWaitsIsBoundedInBytes) {
  Busy busy;
  std::atomic<int> ran = 0;
  const auto add = [&](size_t bytes) { return run_in_background({.run = [&ran] { ++ran; }, .bytes = bytes}); };
  EXPECT_TRUE(add(kMostWaitingBytes / 2));
  EXPECT_TRUE(add(kMostWaitingBytes / 2));
  EXPECT_FALSE(add(1)) << "dropped";
  EXPECT_TRUE(add(0));
  busy.end();
  wait_for_background();
  EXPECT_EQ(ran, 3);
  EXPECT_TRUE(add(2 * kMostWaitingBytes)) << "alone";
  wait_for_background();
}

TEST(BackgroundThreads, WhatNobodyWantsMakesRoom) {
  Busy busy;
  bool wanted = true;
  std::atomic<int> ran = 0;
  EXPECT_TRUE(run_in_background({.run = [&ran] { ran += 10; }, .is_wanted = [&wanted] { return wanted; }, .bytes = kMostWaitingBytes}));
  EXPECT_FALSE(run_in_background({.run = [&ran] { ++ran; }, .bytes = 1}));
  wanted = false;
  EXPECT_TRUE(run_in_background({.run = [&ran] { ++ran; }, .bytes = 1}));
  busy.end();
  wait_for_background();
  EXPECT_EQ(ran, 1);
}

int niceness() { return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid))); }

auto threads_of_process() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

// A busy machine gives next to no time to a low-priority thread: a caller of wait() must not wait for it.
TEST(BackgroundThreads, WhoWaitsHasJobsRunAtItsPriority) {
  Busy busy;
  auto seen = std::make_shared<std::atomic<int>>(-1);
  run_in_background({.run = [seen] { *seen = niceness(); }});
  const auto before = threads_of_process();
  std::thread waiter(wait_for_background);
  // Until the waiter has started its thread. An idle thread of an earlier test may end meanwhile, and then the count stays lower.
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (threads_of_process() < before + 2 && std::chrono::steady_clock::now() < latest) std::this_thread::yield();
  busy.end();
  waiter.join();
  EXPECT_EQ(*seen, niceness());
}

TEST(BackgroundThreads, AChildHasWhatWaitedAndWhatRan) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer knows no threads that a child starts";
#endif
  auto ran = std::make_shared<std::atomic<int>>(0);
  const pid_t parent = getpid();
  Busy busy;
  run_in_background({.run = [ran] { *ran += 1; }});
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    busy.end();  // the job that ran in the parent runs here too
    wait_for_background();
    _exit(*ran == 1 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(getpid(), parent);
  busy.end();
  wait_for_background();
  EXPECT_EQ(*ran, 1);
}

}  // namespace
}  // namespace hindcast::engine
