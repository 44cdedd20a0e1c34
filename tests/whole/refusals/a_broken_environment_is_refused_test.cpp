// HINDCAST_LOGS and HINDCAST_LOGS_OUT are read at the first enable(). An invalid value is an error there, which leaves the thread
// unchanged; once the value is corrected, the next enable() works.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <unistd.h>

#include "engine/diagnosis/log_setup.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ABrokenEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    forget();
    hindcast::reset();
    folder_ = fs::temp_directory_path() / ("hindcast_environment_" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override {
    forget();
    fs::remove_all(folder_);
  }

  static void forget() {
    unsetenv("HINDCAST_LOGS");
    unsetenv("HINDCAST_LOGS_OUT");
    engine::forget_log_configuration();
  }
  static std::string refusal_of_enable() {
    try {
      const auto guard = hindcast::enable();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  static void backward() { at::ones({3}).set_requires_grad(true).sin().sum().backward(); }
  std::string text_of(const fs::path& file) const {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_;
};

TEST_F(ABrokenEnvironment, AnUnknownNameIsRefusedWithTheValidOnes) {
  setenv("HINDCAST_LOGS", "recompile", 1);
  EXPECT_THAT(refusal_of_enable(), HasSubstr("HINDCAST_LOGS: unknown name 'recompile' in 'recompile'. Did you mean "
                                             "'recompiles'?"));
  EXPECT_THAT(
      refusal_of_enable(),
      HasSubstr("Valid names: all, aot, aot_graphs, cache, compiled_autograd, compiled_autograd_verbose, cudagraphs, fallbacks, fusion, "
                "graph, graph_code, hooks, kernel_code, perf, recompiles."));
}

TEST_F(ABrokenEnvironment, NothingIsSwitchedOnByIt) {
  setenv("HINDCAST_LOGS", "recompile", 1);
  refusal_of_enable();
  EXPECT_FALSE(hindcast::active());
  backward();
  EXPECT_EQ(hindcast::stats().backwards, 0U);
}

TEST_F(ABrokenEnvironment, ItConcernsTheFirstGuardOnly) {
  const auto outer = hindcast::enable();
  setenv("HINDCAST_LOGS", "recompile", 1);
  EXPECT_EQ(refusal_of_enable(), "nothing was thrown") << "the variable is read once";
  EXPECT_TRUE(hindcast::active());
}

TEST_F(ABrokenEnvironment, PutRightItIsRead) {
  setenv("HINDCAST_LOGS", "recompile", 1);
  refusal_of_enable();
  const fs::path file = folder_ / "lines.log";
  setenv("HINDCAST_LOGS", "recompiles", 1);
  setenv("HINDCAST_LOGS_OUT", file.c_str(), 1);
  const auto guard = hindcast::enable();
  backward();
  EXPECT_THAT(text_of(file), HasSubstr("[hindcast/recompiles] Cache miss due to new autograd node: "));
}

TEST_F(ABrokenEnvironment, AFileThatCannotBeOpenedIsNamed) {
  const fs::path file = folder_ / "no_such_folder" / "lines.log";
  setenv("HINDCAST_LOGS_OUT", file.c_str(), 1);
  EXPECT_THAT(refusal_of_enable(), HasSubstr("HINDCAST_LOGS_OUT: cannot open '" + file.string() + "'"));
  EXPECT_FALSE(hindcast::active());
}

TEST_F(ABrokenEnvironment, SignsChooseTheLevelOfEachChannel) {
  const fs::path file = folder_ / "lines.log";
  setenv("HINDCAST_LOGS", "-all,+cache", 1);
  setenv("HINDCAST_LOGS_OUT", file.c_str(), 1);
  const auto guard = hindcast::enable();
  for (int step = 0; step < 2; ++step) backward();
  EXPECT_EQ(text_of(file), "[hindcast/cache] hit: graph 0, 3 nodes\n");
}

}  // namespace
}  // namespace hindcast::tests
