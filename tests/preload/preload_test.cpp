// LD_PRELOAD=libhindcast_auto.so: programs of their own, with LibTorch, without it, and with LibTorch loaded later.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

namespace hindcast::tests::preload_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

struct Ended {
  int status;
  std::string errors;  // and the standard output
};

fs::path build_folder() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path(); }
std::string program(const std::string& name) { return build_folder() / "tests/preload" / name; }

Ended run(const std::string& command) {
  Ended ended{-1, ""};
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ended;
  std::array<char, 4096> part{};
  while (const size_t read = fread(part.data(), 1, part.size(), pipe)) ended.errors.append(part.data(), read);
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ended;
}

// Preloads into the program only, not into the shell that runs the command. Python's programs get variables from the tests.
Ended run_preloaded(const std::string& command, const std::string& environment = "HINDCAST_REPORT=1") {
  const std::string library = build_folder() / "lib/libhindcast_auto.so";
  return run("env HINDCAST_COMPILER=eager HINDCAST_BACK_OFF=0 " + environment + " LD_PRELOAD=" + library + " " + command);
}

/// How many backwards were taken over according to the reports, one number per process.
std::vector<int> taken_over(const std::string& text) {
  static const std::regex kRow("taken over +([0-9]+)");
  std::vector<int> counts;
  for (std::sregex_iterator i(text.begin(), text.end(), kRow), end; i != end; ++i) counts.push_back(std::stoi((*i)[1]));
  return counts;
}

constexpr int kSteps = 20;

TEST(Preload, TakesOverAllThreadsAndReportsAtTheEnd) {
  const Ended ended = run_preloaded(program("trainer") + " thread");
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(taken_over(ended.errors), testing::ElementsAre(2 * kSteps)) << ended.errors;
}

TEST(Preload, IsWithAProgramsOwnHindcast) {
  const Ended ended = run_preloaded("timeout 60 " + program("own_guard"));
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(taken_over(ended.errors), testing::ElementsAre(2 * kSteps)) << ended.errors;
}

TEST(Preload, SaysNothingWithoutAReport) {
  const Ended ended = run_preloaded(program("trainer"), "HINDCAST_REPORT=0");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.errors, IsEmpty());
}

TEST(Preload, KeepsTheProgramsStatus) {
  const Ended ended = run_preloaded(program("trainer") + " 7");
  EXPECT_EQ(ended.status, 7);
  EXPECT_THAT(taken_over(ended.errors), testing::ElementsAre(kSteps));
}

TEST(Preload, WorksInDestructorsOfGlobals) {
  const Ended ended = run_preloaded(program("trainer") + " last");
  EXPECT_EQ(ended.status, 0) << ended.errors;
}

TEST(Preload, AReportToAClosedPipeKeepsTheExitStatus) {
  const std::string library = build_folder() / "lib/libhindcast_auto.so";
  const Ended ended = run("bash -c 'set -o pipefail; HINDCAST_COMPILER=eager HINDCAST_REPORT=1 LD_PRELOAD=" + library + " " +
                          program("trainer") + " 2>&1 | true'");
  EXPECT_EQ(ended.status, 0) << ended.errors;
}

TEST(Preload, AProgramEndsWhoseMainThreadHasEnded) {
  const Ended ended = run_preloaded("timeout 60 " + program("trainer") + " leave", "HINDCAST_COMPILER=fused HINDCAST_REPORT=1");
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(taken_over(ended.errors), testing::ElementsAre(kSteps)) << ended.errors;
}

TEST(Preload, AForksChildIsTakenOverToo) {
  const Ended ended = run_preloaded(program("trainer") + " fork");
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(taken_over(ended.errors), testing::ElementsAre(2 * kSteps, kSteps)) << "the child's, which counts what was before the fork";
}

TEST(Preload, IsSwitchedOffByTheEnvironment) {
  const Ended ended = run_preloaded(program("trainer"), "HINDCAST_DISABLE=1 HINDCAST_REPORT=1");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.errors, IsEmpty());
}

TEST(Preload, SaysWhatIsWrongAndGoesOn) {
  const Ended ended = run_preloaded(program("trainer"), "HINDCAST_COMPILER=slow");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(
      ended.errors,
      "libhindcast_auto: hindcast_enable_process: HINDCAST_COMPILER is 'slow'; expected eager, fused or fused_through_aten; LibTorch's "
      "engine runs everything\n");
}

TEST(Preload, TakesOverALibTorchThatIsOpenedLater) {
  const Ended ended = run_preloaded(program("host") + " " + program("libplugin.so"));
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(taken_over(ended.errors), testing::ElementsAre(2 * kSteps)) << ended.errors;
}

TEST(Preload, ChangesNothingInAProgramWithoutLibTorch) {
  const Ended ended = run_preloaded("ls -d /");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.errors, "/\n");
  const Ended maps = run_preloaded("cat /proc/self/maps");
  EXPECT_THAT(maps.errors, HasSubstr("libhindcast_auto.so"));
  for (const char* library : {"libtorch", "libc10", "libstdc++", "libhindcast.so"})
    EXPECT_THAT(maps.errors, testing::Not(HasSubstr(library)));
}

TEST(Preload, LeavesAnotherReleaseOfLibTorchAlone) {
  const Ended ended = run_preloaded(program("program_of_other_release"));
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.errors, HasSubstr("and the program has 2.7; LibTorch's engine runs everything\n"));
}

TEST(Preload, LeavesPythonToItsOwnHindcast) {
  if (!fs::exists(".deps/venv/bin/python")) GTEST_SKIP() << "no Python with torch in .deps/venv";
  const Ended ended = run_preloaded(
      ".deps/venv/bin/python -W ignore -c 'import torch; x = torch.ones(3, requires_grad=True); x.sin().sum().backward(); print(x.grad is "
      "None)'");
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("False\n"));
  EXPECT_THAT(ended.errors, HasSubstr("python -m hindcast script.py"));
  EXPECT_THAT(taken_over(ended.errors), IsEmpty());
}

}  // namespace
}  // namespace hindcast::tests::preload_test
