// The file of a trace: complete after each record, bounded, one per process, and never a reason for a program to fail.

#include "base/trace.h"

#include "base/log.h"
#include "tests/engine/diagnosis/trace/traced.h"
#include "tests/support/in_child.h"
#include "tests/support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <system_error>

namespace hindcast::tests {
namespace {

using base::JsonObject;
using base::write_record;
using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

void write_number(int number) {
  JsonObject head;
  head.add("number", number);
  write_record("number", std::move(head));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TraceFile, HasThePageAndARecordOnEachLine) {
  const Traced traced;
  write_number(1);
  JsonObject head, body;
  head.add("name", "</script>");
  body.add("text", "a\nb");
  write_record("other", std::move(head), &body);

  const auto records = traced.records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].kind(), "start");
  EXPECT_EQ(records[0].head.at("pid"), getpid());
  EXPECT_EQ(records[1].head.at("number"), 1);
  EXPECT_TRUE(records[1].body.is_null());
  EXPECT_EQ(records[2].head.at("name"), "</script>");
  EXPECT_EQ(records[2].body.at("text"), "a\nb");
  EXPECT_LE(records[1].head.at("t"), records[2].head.at("t"));
  EXPECT_EQ(traced.file(), traced.folder() / ("hindcast_" + std::to_string(getpid()) + ".html"));
}

TEST(TraceFile, WithoutOneThereAreNoRecords) {
  EXPECT_FALSE(base::tracing());
  EXPECT_EQ(base::trace_path(), "");
  write_number(1);  // not recorded
  { const Traced traced; }
  EXPECT_FALSE(base::tracing());
}

TEST(TraceFile, OneOfAnotherRunStaysAsItWas) {
  const Traced traced;
  const fs::path first = traced.file();
  const std::string before = contents_of(first);
  base::start_trace({traced.folder(), Traced::kPage});
  EXPECT_EQ(traced.file(), traced.folder() / ("hindcast_" + std::to_string(getpid()) + "_2.html"));
  write_number(1);
  EXPECT_EQ(contents_of(first), before);
}

TEST(TraceFile, IsCompleteWhereTheProcessWasKilled) {
  const Traced traced;
  EXPECT_EQ(in_child([] {
              write_number(1);
              write_number(2);
              raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  const auto names = names_in(traced.folder());
  ASSERT_EQ(names.size(), 2U);
  for (const std::string& name : names) {
    if (traced.folder() / name == traced.file()) continue;
    const auto records = records_of(traced.folder() / name, Traced::kPage);
    ASSERT_EQ(records.size(), 3U);
    EXPECT_EQ(records[2].head.at("number"), 2);
  }
}

TEST(TraceFile, AChildHasOneOfItsOwn) {
  const Traced traced;
  write_number(1);
  const pid_t parent = getpid();
  EXPECT_EQ(in_child([&] {
              if (!base::trace_path().empty()) return 1;
              write_number(2);
              const auto records = records_of(base::trace_path(), Traced::kPage);
              if (records.size() != 2 || records[1].head.at("number") != 2) return 2;
              return records[0].head.at("parent") == parent &&
                             records[0].head.at("parent_file") == "hindcast_" + std::to_string(parent) + ".html"
                         ? 0
                         : 3;
            }),
            0);
  write_number(3);
  const auto records = traced.of_kind("number");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[1].head.at("number"), 3);
}

TEST(TraceFile, AChildWithoutRecordsHasNone) {
  const Traced traced;
  EXPECT_EQ(in_child([] { return 0; }), 0);
  EXPECT_EQ(names_in(traced.folder()).size(), 1U);
}

TEST(TraceFile, IsNoLongerThanItMayBe) {
  constexpr uint64_t kMost = 64 << 10;
  LogCapture logs("");
  const Traced traced(kMost);
  for (int i = 0; i < 2000; ++i) write_number(i);
  EXPECT_FALSE(base::tracing());
  EXPECT_LE(fs::file_size(traced.file()), kMost);
  EXPECT_GT(fs::file_size(traced.file()), kMost / 2);
  const auto records = traced.records();
  EXPECT_EQ(records.back().kind(), "end");
  EXPECT_THAT(records.back().head.at("text").get<std::string>(), HasSubstr("Nothing more is written"));
  EXPECT_EQ(logs.count("HINDCAST_TRACE ends"), 1U);
}

TEST(TraceFile, AFolderThatCannotBeIsAnError) {
  const Traced traced;
  const fs::path file = traced.file();
  try {
    base::start_trace({file / "below", Traced::kPage});
    FAIL() << "a folder below a file";
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), HasSubstr((file / "below").string()));
  }
  EXPECT_FALSE(base::tracing());
  write_number(1);
}

TEST(TraceFile, AFullDiskEndsTheTraceAndNothingElse) {
  LogCapture logs("");
  const Traced traced;
  const int status = in_child([&] {
    constexpr rlim_t kMost = 8 << 10;
    const rlimit limit{kMost, kMost};
    signal(SIGXFSZ, SIG_IGN);  // else the process would end
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    for (int i = 0; i < 1000; ++i) write_number(i);
    return !base::tracing() && logs.count("HINDCAST_TRACE ends: ") == 1 && logs.count("File too large") == 1 ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(base::tracing()) << "the parent's goes on";
}

TEST(TraceFile, AChildThatCannotOpenOneDoesWithout) {
  LogCapture logs("");
  const Traced traced;
  const int status = in_child([&] {
    fs::remove_all(traced.folder());
    write_number(1);
    write_number(2);
    return !base::tracing() && logs.count("HINDCAST_TRACE ends: ") == 1 ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hindcast::tests
