// Every log message becomes a record, whatever the log level: the same text in both.

#include "base/log.h"
#include "tests/engine/diagnosis/trace/traced.h"
#include "tests/support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace hindcast::tests {
namespace {

using base::Channel;
using base::Level;
using testing::ElementsAre;

constexpr std::array kLevels = {Level::Debug, Level::Info, Level::Warning, Level::Error};

TEST(TraceOfLogs, WhatIsOnWithoutATraceIsWhatTheLogSays) {
  LogCapture logs("recompiles,+cache,-graph");
  for (size_t i = 0; i < base::kChannelCount; ++i) {
    for (const Level level : kLevels) {
      const auto channel = static_cast<Channel>(i);
      EXPECT_EQ(base::enabled(channel, level), base::is_for_output(channel, level)) << name(channel);
    }
  }
  EXPECT_FALSE(base::enabled(Channel::Perf, Level::Info)) << "each step would be timed";
}

TEST(TraceOfLogs, SentencesAreRecordsAndTheOutputStaysAsItWas) {
  LogCapture logs("");
  {
    const Traced traced;
    HC_LOG(Recompiles, Info, "a {}", "miss");
    HC_LOG(Fallbacks, Warning, "a fallback");
    HC_LOG(Cache, Debug, "nobody wants this");
    EXPECT_THAT(traced.sentences("recompiles"), ElementsAre("a miss"));
    EXPECT_THAT(traced.sentences("fallbacks"), ElementsAre("a fallback"));
    EXPECT_TRUE(traced.sentences("cache").empty());
    EXPECT_EQ(traced.of_kind("log")[1].head.at("level"), "warning");
  }
  EXPECT_EQ(logs.text(), "[hindcast/fallbacks] warning: a fallback\n");
  EXPECT_FALSE(base::enabled(Channel::Recompiles, Level::Info));
}

TEST(TraceOfLogs, TheLogMayBeToldSomethingElseMeanwhile) {
  LogCapture logs("");
  const Traced traced;
  const auto before = base::log_thresholds();
  EXPECT_EQ(before, base::default_log_thresholds()) << "what the trace wants is none of the output's thresholds";
  auto thresholds = before;
  thresholds.fill(Level::Error);
  base::set_log_thresholds(thresholds);
  HC_LOG(Recompiles, Info, "a miss");
  base::set_log_thresholds(before);
  EXPECT_THAT(traced.sentences("recompiles"), ElementsAre("a miss"));
  EXPECT_EQ(logs.text(), "");
}

TEST(TraceOfLogs, ASentenceThatComesInEachStepIsFewRecords) {
  const Traced traced;
  for (int i = 0; i < 1000; ++i) HC_LOG(Fallbacks, Info, "the same");
  HC_LOG(Recompiles, Info, "the same");
  std::vector<int> times;
  for (const Record& record : traced.of_kind("log")) times.push_back(record.head.at("times"));
  EXPECT_THAT(times, ElementsAre(1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1));
}

TEST(TraceOfLogs, TextsForTheOutputAloneAreNoRecords) {
  LogCapture logs("compiled_autograd");
  const Traced traced;
  base::write_output(Channel::CompiledAutograd, Level::Info, "a listing");
  base::write_output(Channel::Recompiles, Level::Info, "not wanted");
  EXPECT_EQ(logs.text(), "[hindcast/compiled_autograd] a listing\n");
  EXPECT_TRUE(traced.of_kind("log").empty());
}

}  // namespace
}  // namespace hindcast::tests
