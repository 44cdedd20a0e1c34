#include "hindcast/stats.h"

#include "base/log.h"
#include "engine/counters/fallback.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/report.h"
#include "tests/support/log_capture.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace hindcast::tests::stats_test {
namespace {

using engine::FallbackReason;
using engine::StatsRecorder;

constexpr FallbackReason kAllReasons[] = {
#define HC_REASON(enumerator, warns, sentence) FallbackReason::enumerator,
    HC_FALLBACK_REASONS(HC_REASON)
#undef HC_REASON
};

Stats some_stats() {
  Stats stats;
  stats.backwards = 100;
  stats.unique_graphs = 1;
  stats.hits = 98;
  stats.misses = 2;
  stats.misses_by_reason = {{"ChangedShapes", 1}, {"NewNode", 1}};
  stats.fallbacks_by_reason = {{"CreateGraph", 3}};
  stats.opaque_nodes = {{"MyFunction", 2}};
  stats.nodes = 1000;
  stats.collect_us = 150;
  stats.trace_us = 2500;
  stats.run_us = 12345.67;
  stats.opaque_calls = 198;
  return stats;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Stats, NsPerNodeIsTheTimeToCollectOverTheNodes) {
  EXPECT_DOUBLE_EQ(some_stats().ns_per_node(), 150);
  EXPECT_EQ(Stats{}.ns_per_node(), 0);
}

TEST(Stats, PrintsCompactly) {
  std::ostringstream out;
  out << some_stats();
  EXPECT_EQ(out.str(),
            "backwards 100: graphs 1, hits 98, misses 2\n"
            "  misses: ChangedShapes 1, NewNode 1\n"
            "  fallbacks: CreateGraph 3\n"
            "  opaque nodes: MyFunction 2\n"
            "  nodes 1000: 150.0 ns each to collect and look up\n"
            "  us: collect 150.0, trace 2500.0, run 12345.7\n"
            "  opaque calls 198, hook calls 0, segment guard failures 0");
}

TEST(Stats, PrintsOneLineWhenNothingHappened) {
  std::ostringstream out;
  out << Stats{};
  EXPECT_EQ(out.str(), "backwards 0: graphs 0, hits 0, misses 0");
}

TEST(StatsRecorder, CountsIntoTheSnapshot) {
  StatsRecorder recorder;
  recorder.add_backward();
  recorder.add_backward();
  recorder.add_hit();
  recorder.add_graph();
  recorder.add_miss();
  recorder.add_miss_reason("NewNode", "why");
  recorder.add_fallback("CreateGraph");
  recorder.add_opaque_node("MyFunction", "not declared traceable");
  recorder.add_nodes(10);
  recorder.add_collect_ns(1500);
  recorder.add_trace_ns(2000);
  recorder.add_run_ns(2500);
  recorder.add_opaque_calls(3);
  recorder.add_hook_calls(4);
  recorder.add_segment_guard_failure();

  const Stats stats = recorder.snapshot();
  EXPECT_EQ(stats.backwards, 2);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.unique_graphs, 1);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.misses_by_reason.at("NewNode"), 1);
  EXPECT_EQ(stats.fallbacks_by_reason.at("CreateGraph"), 1);
  EXPECT_EQ(stats.opaque_nodes.at("MyFunction"), 1);
  EXPECT_EQ(stats.nodes, 10);
  EXPECT_DOUBLE_EQ(stats.collect_us, 1.5);
  EXPECT_DOUBLE_EQ(stats.trace_us, 2);
  EXPECT_DOUBLE_EQ(stats.run_us, 2.5);
  EXPECT_EQ(stats.opaque_calls, 3);
  EXPECT_EQ(stats.hook_calls, 4);
  EXPECT_EQ(stats.segment_guard_failures, 1);
}

TEST(StatsRecorder, ResetForgetsEverything) {
  StatsRecorder recorder;
  recorder.add_backward();
  recorder.add_run_ns(5);
  recorder.add_miss();
  recorder.add_miss_reason("NewNode", "why");
  recorder.add_fallback("CreateGraph");
  recorder.reset();
  std::ostringstream out;
  out << recorder.snapshot();
  EXPECT_EQ(out.str(), "backwards 0: graphs 0, hits 0, misses 0");
  EXPECT_TRUE(recorder.recent_misses().empty());
}

TEST(StatsRecorder, KeepsTheLatestMisses) {
  StatsRecorder recorder;
  for (size_t i = 0; i < StatsRecorder::kRecentMisses + 3; ++i) recorder.add_miss_reason("NewNode", std::to_string(i));
  const std::vector<std::string> recent = recorder.recent_misses();
  ASSERT_EQ(recent.size(), StatsRecorder::kRecentMisses);
  EXPECT_EQ(recent.front(), "3");
  EXPECT_EQ(recent.back(), std::to_string(StatsRecorder::kRecentMisses + 2));
}

TEST(StatsRecorder, LosesNothingBetweenThreads) {
  StatsRecorder recorder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        recorder.add_backward();
        recorder.add_nodes(7);
        recorder.add_miss_reason("NewNode");
        if (i % 100 == 0) recorder.snapshot();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Stats stats = recorder.snapshot();
  EXPECT_EQ(stats.backwards, 4000);
  EXPECT_EQ(stats.nodes, 28000);
  EXPECT_EQ(stats.misses_by_reason.at("NewNode"), 4000);
}

TEST(FallbackReasons, HaveDistinctNamesAndASentenceEach) {
  std::set<std::string> names;
  for (const FallbackReason reason : kAllReasons) {
    names.insert(name(reason));
    EXPECT_EQ(engine::find_fallback_reason(name(reason)), reason);
    EXPECT_TRUE(std::string(explain(reason)).ends_with('.')) << name(reason);
  }
  EXPECT_EQ(names.size(), std::size(kAllReasons));
  EXPECT_STREQ(name(FallbackReason::CreateGraph), "CreateGraph");
  EXPECT_FALSE(engine::find_fallback_reason("NoSuchReason").has_value());
}

TEST(FallbackReasons, WarnOnceAndAreCountedAlways) {
  const auto counted = [] { return engine::stats_recorder().snapshot().fallbacks_by_reason["CreateGraph"]; };
  const uint64_t before = counted();
  engine::forget_fallback_warnings();
  LogCapture logs("");
  for (int i = 0; i < 3; ++i) engine::record_fallback(FallbackReason::CreateGraph);
  EXPECT_EQ(counted() - before, 3);
  EXPECT_EQ(logs.count("[hindcast/fallbacks] warning: CreateGraph: create_graph was asked for"), 1);
  EXPECT_EQ(logs.count(""), 1);
}

TEST(FallbackReasons, DoNotWarnOfWhatTheUserAskedFor) {
  engine::forget_fallback_warnings();
  LogCapture logs("fallbacks");
  engine::record_fallback(FallbackReason::Disabled);
  EXPECT_EQ(logs.count("warning"), 0);
  EXPECT_EQ(logs.count("Disabled"), 1);
}

TEST(Report, HasASectionForEachKindOfEvent) {
  const std::string text = engine::report(some_stats(), {"Cache miss due to changed shapes: ..."});
  EXPECT_TRUE(holds(text, "backwards\n  taken over                 100\n  stock engine                 3\n")) << text;
  EXPECT_TRUE(holds(text, "  hits                        98  98.0%\n")) << text;
  EXPECT_TRUE(holds(text, "misses by reason\n  ChangedShapes                1\n")) << text;
  EXPECT_TRUE(holds(text, "  Cache miss due to changed shapes: ...\n")) << text;
  EXPECT_TRUE(holds(text, "  CreateGraph                  3  create_graph was asked for")) << text;
  EXPECT_TRUE(holds(text, "  MyFunction                   2  captured as a call of itself\n")) << text;
  EXPECT_TRUE(holds(text, "  collect               150.0 us  150.0 ns for each of 1000 nodes\n")) << text;
}

TEST(Report, SaysWhatToDoWhenNothingWasTakenOver) {
  const std::string text = engine::report(Stats{}, {});
  EXPECT_TRUE(holds(text, "a guard of enable() must be alive on the thread that calls backward(), or one of enable_process()")) << text;
  EXPECT_FALSE(holds(text, "misses by reason")) << text;
  Stats on_stock;
  on_stock.fallbacks_by_reason["Disabled"] = 1;
  EXPECT_FALSE(holds(engine::report(on_stock, {}), "No backward came")) << "the reason says it";
}

TEST(Report, ExplainsEveryFallback) {
  Stats stats;
  for (const FallbackReason reason : kAllReasons) stats.fallbacks_by_reason[name(reason)] = 1;
  const std::string text = engine::report(stats, {});
  for (const FallbackReason reason : kAllReasons) EXPECT_TRUE(holds(text, explain(reason))) << name(reason);
}

}  // namespace
}  // namespace hindcast::tests::stats_test
