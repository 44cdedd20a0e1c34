// Many threads write one file: records do not interleave, and a fork at any moment leaves two readable files.

#include "base/log.h"
#include "tests/engine/diagnosis/trace/traced.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

void write_many(int writer, int count) {
  for (int i = 0; i < count; ++i) {
    base::JsonObject head, body;
    head.add("writer", writer).add("number", i);
    body.add("text", std::string(200, 'x'));
    base::write_record("number", std::move(head), &body);
    HC_LOG(Recompiles, Info, "{} of {}", i, writer);
  }
}

TEST(TraceThreads, WriteOneRecordAfterTheOther) {
  constexpr int kThreads = 4, kRecords = 200;
  const Traced traced;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(write_many, t, kRecords);
  for (std::thread& thread : threads) thread.join();

  std::map<int, int> next;
  std::set<int> numbers_of_threads;
  for (const Record& record : traced.of_kind("number")) {
    EXPECT_EQ(record.head.at("number"), next[record.head.at("writer")]++);
    numbers_of_threads.insert(record.head.at("thread").get<int>());
  }
  ASSERT_EQ(next.size(), static_cast<size_t>(kThreads));
  for (const auto& [writer, count] : next) EXPECT_EQ(count, kRecords) << writer;
  EXPECT_EQ(numbers_of_threads.size(), static_cast<size_t>(kThreads));
  EXPECT_EQ(traced.sentences("recompiles").size(), static_cast<size_t>(kThreads * kRecords));
}

TEST(TraceThreads, AForkMeanwhileLeavesTwoFiles) {
  const Traced traced;
  std::atomic<int> rounds = 0;  // rounds the writer may write, lest the file be full before the last fork
  std::jthread writer([&](const std::stop_token& stop) {
    for (int written = 0; !stop.stop_requested();) {
      if (written == rounds) {
        std::this_thread::yield();
        continue;
      }
      write_many(0, 50);
      ++written;
    }
  });
  for (int i = 0; i < 20; ++i) {
    ++rounds;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);  // ends a deadlock
      write_many(1, 5);
      _exit(records_of(base::trace_path(), Traced::kPage).size() == 11 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  writer.request_stop();
  writer.join();
  for (const Record& record : traced.of_kind("number")) EXPECT_EQ(record.head.at("writer"), 0);
}

}  // namespace
}  // namespace hindcast::tests
