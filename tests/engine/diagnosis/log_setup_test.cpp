#include "engine/diagnosis/log_setup.h"

#include "base/log.h"
#include "tests/support/log_capture.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace hindcast::tests {
namespace {

using base::Channel;
using base::Level;
using engine::parse_log_spec;

Level level_of(std::string_view spec, Channel channel) { return parse_log_spec(spec)[static_cast<size_t>(channel)]; }

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Restores the environment and the configuration after each test.
class LogEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("HINDCAST_LOGS");
    unsetenv("HINDCAST_LOGS_OUT");
    engine::forget_log_configuration();
    folder_ = std::filesystem::temp_directory_path() / ("hindcast_logs_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    unsetenv("HINDCAST_LOGS");
    unsetenv("HINDCAST_LOGS_OUT");
    engine::forget_log_configuration();
    std::filesystem::remove_all(folder_);
  }
  std::string file() const { return folder_ / "lines.log"; }
  std::string text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_;
};

TEST(LogSpec, ASignSaysTheLevel) {
  EXPECT_EQ(level_of("cache", Channel::Cache), Level::Info);
  EXPECT_EQ(level_of("+cache", Channel::Cache), Level::Debug);
  EXPECT_EQ(level_of("-cache", Channel::Cache), Level::Error);
}

TEST(LogSpec, WhatIsNotNamedStaysAtWarnings) {
  EXPECT_EQ(level_of("cache", Channel::Perf), Level::Warning);
  EXPECT_EQ(parse_log_spec(""), base::default_log_thresholds());
  EXPECT_EQ(parse_log_spec("  "), base::default_log_thresholds());
  EXPECT_EQ(parse_log_spec("0"), base::default_log_thresholds());
}

TEST(LogSpec, TakesAListWithBlanks) {
  const std::string spec = "  compiled_autograd , +recompiles,- perf\t";
  EXPECT_EQ(level_of(spec, Channel::CompiledAutograd), Level::Info);
  EXPECT_EQ(level_of(spec, Channel::CompiledAutogradVerbose), Level::Warning);
  EXPECT_EQ(level_of(spec, Channel::Recompiles), Level::Debug);
  EXPECT_EQ(level_of(spec, Channel::Perf), Level::Error);
}

TEST(LogSpec, EveryChannelHasItsName) {
  for (size_t i = 0; i < base::kChannelCount; ++i) {
    EXPECT_EQ(parse_log_spec(base::kChannelNames[i])[i], Level::Info) << base::kChannelNames[i];
  }
  EXPECT_EQ(base::name(Channel::CompiledAutogradVerbose), "compiled_autograd_verbose");
  EXPECT_EQ(base::name(Channel::Perf), "perf");
}

TEST(LogSpec, AllIsEveryChannelThatIsNotNamedItself) {
  for (const Level level : parse_log_spec("all")) EXPECT_EQ(level, Level::Info);
  for (const Level level : parse_log_spec("+all")) EXPECT_EQ(level, Level::Debug);
  for (const Level level : parse_log_spec("-all")) EXPECT_EQ(level, Level::Error);
  for (const char* spec : {"+hooks,-all", "-all,+hooks"}) {
    EXPECT_EQ(level_of(spec, Channel::Hooks), Level::Debug) << spec;
    EXPECT_EQ(level_of(spec, Channel::Graph), Level::Error) << spec;
  }
}

TEST(LogSpec, TheLastOfEqualNamesWins) { EXPECT_EQ(level_of("+cache,cache", Channel::Cache), Level::Info); }

TEST(LogSpec, AnUnknownNameIsRefusedWithTheNearestAndAllValidOnes) {
  const std::string text = refusal_of([] { parse_log_spec("cache,+recompile"); });
  EXPECT_TRUE(holds(text, "HINDCAST_LOGS: unknown name 'recompile' in 'cache,+recompile'")) << text;
  EXPECT_TRUE(holds(text, "Did you mean 'recompiles'?")) << text;
  EXPECT_TRUE(
      holds(text,
            "Valid names: all, aot, aot_graphs, cache, compiled_autograd, compiled_autograd_verbose, cudagraphs, fallbacks, fusion, graph, "
            "graph_code, hooks, kernel_code, perf, recompiles."))
      << text;
}

TEST(LogSpec, AWordLikeNoNameIsRefusedWithoutAGuess) {
  const std::string text = refusal_of([] { parse_log_spec("inductor"); });
  EXPECT_TRUE(holds(text, "unknown name 'inductor'")) << text;
  EXPECT_FALSE(holds(text, "Did you mean")) << text;
}

TEST(LogSpec, AMissingNameIsRefused) {
  for (const char* spec : {"cache,,perf", "cache,", ",", "+", "cache,-"}) {
    EXPECT_TRUE(holds(refusal_of([&] { parse_log_spec(spec); }), "a name is missing")) << spec;
  }
}

TEST(LogSpec, NamesAreExact) {
  EXPECT_TRUE(holds(refusal_of([] { parse_log_spec("Cache"); }), "Did you mean 'cache'?"));
  EXPECT_TRUE(holds(refusal_of([] { parse_log_spec("++cache"); }), "unknown name '+cache'"));
}

TEST(Log, ALineStartsWithItsChannel) {
  LogCapture logs("recompiles");
  HC_LOG(Recompiles, Info, "size {} is dynamic", 3);
  EXPECT_EQ(logs.text(), "[hindcast/recompiles] size 3 is dynamic\n");
}

TEST(Log, EveryLineOfATextCanBeGrepped) {
  LogCapture logs("graph_code");
  HC_LOG(GraphCode, Info, "def f(a):\n  return a\n");
  EXPECT_EQ(logs.text(), "[hindcast/graph_code] def f(a):\n[hindcast/graph_code]   return a\n");
}

TEST(Log, BracesAndPercentSignsInValuesAreLeftAlone) {
  LogCapture logs("graph");
  HC_LOG(Graph, Info, "{}", "{} 100%v {0}");
  EXPECT_EQ(logs.text(), "[hindcast/graph] {} 100%v {0}\n");
}

TEST(Log, WarningsAndErrorsAreWrittenByDefaultAndSaySo) {
  LogCapture logs("");
  HC_LOG(Fallbacks, Debug, "debug");
  HC_LOG(Fallbacks, Info, "info");
  HC_LOG(Fallbacks, Warning, "slow");
  HC_LOG(Cache, Error, "broken");
  EXPECT_EQ(logs.text(), "[hindcast/fallbacks] warning: slow\n[hindcast/cache] error: broken\n");
}

TEST(Log, AMinusSilencesWarnings) {
  LogCapture logs("-fallbacks");
  HC_LOG(Fallbacks, Warning, "slow");
  HC_LOG(Fallbacks, Error, "broken");
  EXPECT_EQ(logs.text(), "[hindcast/fallbacks] error: broken\n");
}

TEST(Log, ArgumentsAreEvaluatedOnlyWhenTheChannelIsOn) {
  LogCapture logs("cache");
  int evaluated = 0;
  HC_LOG(Cache, Debug, "{}", ++evaluated);
  HC_LOG(Perf, Info, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
  HC_LOG(Cache, Info, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 1);
}

TEST(Log, ThreadsDoNotMixTheirLines) {
  LogCapture logs("perf");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) HC_LOG(Perf, Info, "a whole line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(logs.count("[hindcast/perf] a whole line"), 800);
  EXPECT_EQ(logs.text().size(), 800 * std::string_view("[hindcast/perf] a whole line\n").size());
}

TEST(LogCapture, PutsBackWhatWasThere) {
  LogCapture outer("cache");
  {
    LogCapture inner("+all");
    HC_LOG(Hooks, Debug, "inside");
    EXPECT_EQ(inner.count("inside"), 1);
  }
  HC_LOG(Hooks, Debug, "after");
  HC_LOG(Cache, Info, "outer");
  EXPECT_EQ(outer.text(), "[hindcast/cache] outer\n");
}

TEST_F(LogEnvironment, IsReadOnce) {
  setenv("HINDCAST_LOGS", "cache", 1);
  engine::configure_logs_from_environment();
  EXPECT_TRUE(base::enabled(Channel::Cache, Level::Info));
  setenv("HINDCAST_LOGS", "perf,not even a name", 1);
  engine::configure_logs_from_environment();
  EXPECT_TRUE(base::enabled(Channel::Cache, Level::Info));
  EXPECT_FALSE(base::enabled(Channel::Perf, Level::Info));
}

TEST_F(LogEnvironment, ABadValueThrowsUntilItIsPutRight) {
  setenv("HINDCAST_LOGS", "cash", 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(holds(refusal_of(engine::configure_logs_from_environment),
                      "HINDCAST_LOGS: unknown name 'cash' in 'cash'. "
                      "Did you mean 'cache'?"));
  }
  EXPECT_FALSE(base::enabled(Channel::Cache, Level::Info));
  setenv("HINDCAST_LOGS", "cache", 1);
  engine::configure_logs_from_environment();
  EXPECT_TRUE(base::enabled(Channel::Cache, Level::Info));
}

TEST_F(LogEnvironment, LinesAreAppendedToTheFile) {
  std::ofstream(file()) << "was here\n";
  setenv("HINDCAST_LOGS", "cache", 1);
  setenv("HINDCAST_LOGS_OUT", file().c_str(), 1);
  engine::configure_logs_from_environment();
  HC_LOG(Cache, Info, "hit");
  EXPECT_EQ(text(), "was here\n[hindcast/cache] hit\n");
}

TEST_F(LogEnvironment, AFileThatCannotBeOpenedIsNamedWithTheReason) {
  const std::string missing = folder_ / "no_such_folder" / "lines.log";
  setenv("HINDCAST_LOGS_OUT", missing.c_str(), 1);
  std::string text = refusal_of(engine::configure_logs_from_environment);
  EXPECT_TRUE(holds(text, "HINDCAST_LOGS_OUT: cannot open '" + missing + "'")) << text;
  EXPECT_TRUE(holds(text, "No such file or directory")) << text;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "no_such_folder"));

  setenv("HINDCAST_LOGS_OUT", folder_.c_str(), 1);
  EXPECT_TRUE(holds(refusal_of(engine::configure_logs_from_environment), "Is a directory"));
}

TEST_F(LogEnvironment, SetLogsComesBeforeIt) {
  setenv("HINDCAST_LOGS", "perf", 1);
  set_logs("cache");
  engine::configure_logs_from_environment();
  EXPECT_TRUE(base::enabled(Channel::Cache, Level::Info));
  EXPECT_FALSE(base::enabled(Channel::Perf, Level::Info));
}

TEST_F(LogEnvironment, SetLogsMayBeCalledAgain) {
  set_logs("+cache", file());
  set_logs("perf", file());
  HC_LOG(Cache, Info, "off again");
  HC_LOG(Perf, Info, "on");
  EXPECT_EQ(text(), "[hindcast/perf] on\n");
}

TEST_F(LogEnvironment, ARefusedSetLogsChangesNothing) {
  set_logs("cache", file());
  EXPECT_TRUE(holds(refusal_of([&] { set_logs("perv", ""); }), "set_logs: unknown name 'perv'"));
  EXPECT_TRUE(holds(refusal_of([&] { set_logs("perf", folder_); }), "set_logs: cannot open"));
  HC_LOG(Perf, Info, "off");
  HC_LOG(Cache, Info, "still here");
  EXPECT_EQ(text(), "[hindcast/cache] still here\n");
}

TEST_F(LogEnvironment, ThreadsMayConfigureAndLogAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        if (t == 0)
          set_logs(i % 2 == 0 ? "cache" : "perf", file());
        else
          engine::configure_logs_from_environment();
        HC_LOG(Cache, Info, "line");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  SUCCEED();
}

}  // namespace
}  // namespace hindcast::tests
