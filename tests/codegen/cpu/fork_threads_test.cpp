// A fork at any moment: while other threads capture, hit, compile and log, child and parent both continue.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"
#include "tests/support/part.h"

namespace {
bool is_forked_child = false;
}  // namespace

// Called by LeakSanitizer. In a child, memory held by the stacks of the parent's other threads looks leaked.
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace hindcast::tests {
namespace {

/// A fork waits for the kernel that is being compiled, so a thousand take some minutes: HINDCAST_FORKS=1000. A partial run does a share of
/// them.
int forks(const Part& part) {
  const char* const given = std::getenv("HINDCAST_FORKS");
  return given == nullptr ? 150 / static_cast<int>(part.count) : std::atoi(given);
}

// ThreadSanitizer does not support threads started by the child of a multithreaded process.
#ifdef __SANITIZE_THREAD__
constexpr bool kChildrenStartThreads = false;
#else
constexpr bool kChildrenStartThreads = true;
#endif

constexpr unsigned kSeconds = 120;  // a deadlock ends the child instead of hanging the test

Options forking_options() {
  Options options;
  options.compiler = compilers::fused();
  options.back_off = false;
  options.cache_size = 8;  // bounds what a child may have to compile for its parent
  return options;
}

/// Runs a chain chosen by the bits of `structure`; whether its gradient is right.
bool backward(uint64_t structure, int length) {
  const auto x = at::full({8}, 0.5, at::kDouble).set_requires_grad(true);
  auto y = x;
  double value = 0.5, slope = 1;
  for (int i = 0; i < length; ++i) {
    if (structure >> i & 1) {
      y = y.sin();
      slope *= std::cos(value);
      value = std::sin(value);
    } else {
      y = y.tanh();
      value = std::tanh(value);
      slope *= 1 - value * value;
    }
  }
  y.sum().backward();
  return at::allclose(x.grad(), at::full_like(x, slope), 1e-9, 1e-12);
}

/// Threads that loop until it is destroyed.
class Busy {
 public:
  explicit Busy(const std::vector<std::function<void(uint64_t)>>& jobs) {
    for (const auto& job : jobs) {
      threads_.emplace_back([this, job] {
        const auto guard = hindcast::enable(forking_options());
        for (uint64_t i = 0; !stop_; ++i) job(i);
      });
    }
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

/// A child that hangs prints where: that may happen once in a thousand forks, on another machine, and leave no other trace.
void say_where_and_die(int) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  std::signal(SIGALRM, SIG_DFL);
  raise(SIGALRM);
}

int status_of_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    is_forked_child = true;
    std::signal(SIGALRM, say_where_and_die);
    alarm(kSeconds);
    body();
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

TEST(ForkThreads, AtAnyMomentHangsNobody) {
  at::set_num_threads(1);  // OpenMP's threads do not exist in a child
  hindcast::reset();
  backward(0b0101, 4);  // MKL has a lock around its first call, which a fork does not take
  {
    // Nor does a fork take the locks of function-local statics: the library's first calls come before it (docs/design.md, "Forks").
    const auto guard = hindcast::enable(forking_options());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(backward(5, 6));
    hindcast::wait();
    static_cast<void>(hindcast::report());
    hindcast::reset();
  }
  std::atomic<int> wrong = 0;
  LogCapture logs("+cache,recompiles,fusion,graph_code");
  void* frames[1];
  backtrace(frames, 1);  // loads its libraries
  std::fflush(nullptr);  // a child that exits would write the buffered output again
  {
    const Busy busy({
        [&](uint64_t i) { wrong += !backward(i * 0x9E3779B97F4A7C15, 12); },  // captures, and makes the background thread compile
        [&](uint64_t) { wrong += !backward(5, 6); },                          // hits
        [&](uint64_t i) {
          if (i % 64 == 0) hindcast::reset();
          static_cast<void>(hindcast::report());
          std::this_thread::yield();
        },
    });
    const Part part = part_of_run();
    std::mt19937 random(static_cast<uint32_t>(1 + part.index));  // different moments in each part
    const int count = forks(part);
    for (int i = 0; i < count; ++i) {
      logs.clear();  // else each fork copies more than the previous one
      for (uint32_t moment = random() % 20000; moment > 0; --moment) std::atomic_signal_fence(std::memory_order_seq_cst);
      const uint32_t kind = random() % 8;
      const int status = status_of_child([&] {
        if (kind == 0) std::exit(0);
        Options options = forking_options();
        options.async = kChildrenStartThreads;
        const auto guard = hindcast::enable(options);
        bool right = backward(kind, 4) && backward(5, 6) && backward(5, 6);  // known to the parent or not
        if (kind == 1) {                                                     // its kernel is new
          right = right && backward(random(), 20);
          if (kChildrenStartThreads) hindcast::wait();
          right = right && hindcast::stats().compiler_failures == 0;
        }
        if (kind == 2) std::exit(right ? 0 : 1);
        _exit(right ? 0 : 1);
      });
      ASSERT_EQ(status, 0) << "fork " << i << ", child of kind " << kind;
    }
  }
  EXPECT_EQ(wrong, 0);
  const auto guard = hindcast::enable(forking_options());
  EXPECT_TRUE(backward(0b1011, 30));
  hindcast::wait();
  EXPECT_TRUE(backward(0b1011, 30));
  EXPECT_EQ(hindcast::stats().compiler_failures, 0U);
}

// The child also compiles what was queued or running in the parent.
TEST(ForkThreads, TheChildHasTheJobsOfItsParent) {
  if (!kChildrenStartThreads) GTEST_SKIP() << "ThreadSanitizer knows no threads that a child starts";
  at::set_num_threads(1);
  hindcast::reset();
  const auto guard = hindcast::enable(forking_options());
  for (int i = 0; i < 6; ++i) backward(0b110100 + i, 16 + i);
  EXPECT_EQ(status_of_child([] {
              hindcast::wait();
              _exit(hindcast::stats().fused_graphs >= 6 ? 0 : 1);
            }),
            0);
  hindcast::wait();
  EXPECT_GE(hindcast::stats().fused_graphs, 6U);
}

}  // namespace
}  // namespace hindcast::tests
