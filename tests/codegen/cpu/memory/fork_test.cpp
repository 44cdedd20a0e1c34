// A child inherits the free buffers, and the lock in a free state.

#include "codegen/cpu/memory/recycler.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace hindcast::codegen::cpu {
namespace {

constexpr size_t kBuffer = size_t{32} << 20;
constexpr size_t kTouched = size_t{1} << 20;

/// The child's work; returns its exit status. No LibTorch operators: their threads are the parent's.
int use_in_child(c10::DataPtr& inherited) {
  Recycler& recycler = Recycler::of_process();
  std::memset(inherited.get(), 2, kTouched);
  inherited.clear();
  for (int i = 0; i < 20; ++i) std::memset(recycler.allocate(kBuffer).get(), i, kTouched);
  return recycler.trim() >= kBuffer && recycler.counts().held_buffers == 0 ? 0 : 1;
}

TEST(RecyclerFork, AChildAllocatesAndFrees) {
  Recycler& recycler = Recycler::of_process();
  std::atomic<bool> stop = false;
  std::thread busy([&] {  // so that some forks find the lock taken
    while (!stop) recycler.allocate(2 * kBuffer);
  });
  c10::DataPtr shared = recycler.allocate(kBuffer);
  std::memset(shared.get(), 1, kTouched);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(use_in_child(shared));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(static_cast<const char*>(shared.get())[kTouched - 1], 1);
}

}  // namespace
}  // namespace hindcast::codegen::cpu
