// NVRTC on several threads, across forks and at process exit.

#include "codegen/cuda/nvrtc.h"
#include "tests/support/machine_code.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

using codegen::cuda::Nvrtc;

std::string object_of(const Nvrtc& nvrtc, int value) {
  const std::string text = "extern \"C\" __global__ void k(int* x) { *x = " + std::to_string(value) + "; }\n";
  return nvrtc.compile(text, {}, codegen::cuda::kernel_options(90)).object;
}

/// The status from waitpid() for a child that runs `body` and exits normally, with destructors.
template <class Body>
int status_of_child(const Body& body) {
  fflush(stdout);  // else the child's exit would write the parent's buffer too
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);  // a deadlock ends the child instead of hanging the test
    body();
    exit(0);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

TEST(NvrtcProcesses, ThreadsGetTheSameCodeAsOneAlone) {
  HC_GET_NVRTC(nvrtc);
  constexpr int kThreads = 4;
  std::vector<std::string> expected;
  for (int i = 0; i < kThreads; ++i) expected.push_back(object_of(*nvrtc, i));
  std::latch start(kThreads);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      for (int i = 0; i < kThreads; ++i) right += object_of(*nvrtc, (thread + i) % kThreads) == expected[(thread + i) % kThreads] ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * kThreads);
}

TEST(NvrtcProcesses, AChildMayCompileAfterItsParentDid) {
  HC_GET_NVRTC(nvrtc);
  const std::string expected = object_of(*nvrtc, 1);
  EXPECT_EQ(status_of_child([&] { _exit(object_of(*nvrtc, 1) == expected ? 0 : 1); }), 0);
}

TEST(NvrtcProcesses, AChildMayCompileThoughItsParentWasCompiling) {
  HC_GET_NVRTC(nvrtc);
  const std::string expected = object_of(*nvrtc, 1);
  std::atomic<int> count = 0;
  std::atomic<bool> stop = false;
  std::thread parents([&] {
    while (!stop) {
      object_of(*nvrtc, ++count);
      count.notify_one();
    }
  });
  for (int i = 0; i < 5; ++i) {
    count.wait(count);
    EXPECT_EQ(status_of_child([&] { _exit(object_of(*nvrtc, 1) == expected ? 0 : 1); }), 0);
  }
  stop = true;
  parents.join();
}

TEST(NvrtcProcesses, AProcessMayExitWhileAThreadCompiles) {
  HC_GET_NVRTC(nvrtc);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(status_of_child([&] {
                static std::atomic<bool> started = false;
                std::thread([nvrtc] {
                  try {
                    while (true) {
                      object_of(*nvrtc, 1);
                      started = true;
                      started.notify_one();
                    }
                  } catch (const Unsupported&) {  // the process is exiting
                  }
                }).detach();
                started.wait(false);
              }),
              0);
  }
}

}  // namespace
}  // namespace hindcast::tests
