// Without the plug-in there is an error message, and nothing else happens.

#include "tests/codegen/cpu/clang/the_compiler.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace hindcast::codegen::cpu {
namespace {

std::string reason_for(std::span<const std::string> paths) {
  std::string why_not;
  EXPECT_EQ(ClangCompiler::open(paths, &why_not), nullptr);
  return why_not;
}

TEST(MissingPlugin, SaysWhereItWasLookedForAndHowToGetIt) {
  const std::array<std::string, 2> paths = {"/nonexistent/first.so", "/nonexistent/second.so"};
  const std::string why_not = reason_for(paths);
  for (const char* part :
       {"/nonexistent/first.so", "/nonexistent/second.so", "apt-get install libclang-19-dev llvm-19-dev", "HINDCAST_CLANG_LIBRARY"})
    EXPECT_NE(why_not.find(part), std::string::npos) << part << " in " << why_not;
}

TEST(MissingPlugin, ALibraryOfAnotherKindIsNoPlugin) {
  const std::array<std::string, 1> paths = {"libm.so.6"};
  const std::string why_not = reason_for(paths);
  EXPECT_NE(why_not.find("hindcast_clang_table"), std::string::npos) << why_not;
}

TEST(MissingPlugin, TheReasonNeedNotBeAskedFor) {
  const std::array<std::string, 1> paths = {"/nonexistent/plugin.so"};
  EXPECT_EQ(ClangCompiler::open(paths, nullptr), nullptr);
}

// In a separate process, since get() looks only once per process.
TEST(MissingPlugin, TheEnvironmentNamesTheOnlyPlace) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("HINDCAST_CLANG_LIBRARY", "/nonexistent/plugin.so", 1);
    execl("/proc/self/exe", "test_compiler", "--gtest_also_run_disabled_tests", "--gtest_filter=MissingPlugin.DISABLED_InTheChild",
          nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(MissingPlugin, DISABLED_InTheChild) {
  std::string why_not;
  EXPECT_EQ(ClangCompiler::get(&why_not), nullptr);
  EXPECT_NE(why_not.find("(/nonexistent/plugin.so: "), std::string::npos) << why_not;
  std::string again;
  EXPECT_EQ(ClangCompiler::get(&again), nullptr);
  EXPECT_EQ(why_not, again);
}

}  // namespace
}  // namespace hindcast::codegen::cpu
