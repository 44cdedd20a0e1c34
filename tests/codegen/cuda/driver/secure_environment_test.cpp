// A program with more rights than its caller opens no library named by the caller's environment.

#include "codegen/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace {
bool has_more_rights = false;
}  // namespace

// Replaces the C library's function, which asks how the process was started.
extern "C" char* secure_getenv(const char* name) noexcept { return has_more_rights ? nullptr : std::getenv(name); }

namespace hindcast::tests {
namespace {

// In a separate process, since get() looks only once per process.
TEST(NvrtcInASecureEnvironment, IsNotTheOneThatTheEnvironmentNames) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("HINDCAST_NVRTC", "/nonexistent/libnvrtc.so", 1);
    execl("/proc/self/exe", "test_cuda_driver", "--gtest_also_run_disabled_tests",
          "--gtest_filter=NvrtcInASecureEnvironment.DISABLED_InTheChild", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(NvrtcInASecureEnvironment, DISABLED_InTheChild) {
  has_more_rights = true;
  std::string why_not;
  codegen::cuda::Nvrtc::get(&why_not);
  EXPECT_EQ(why_not.find("/nonexistent"), std::string::npos) << why_not;
}

}  // namespace
}  // namespace hindcast::tests
