// Lists that share elements, in several threads: also for ThreadSanitizer.

#include "hindcast/detail/shared_list.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace hindcast::base {
namespace {

TEST(SharedListThreads, EditAndDestroyCopiesSideBySide) {
  SharedList<std::string> list;
  for (const char* text : {"a", "b", "c"}) list.push_back(text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([copy = list, t]() mutable {
      for (int i = 0; i < 1000; ++i) {
        SharedList<std::string> own = copy;
        own.edit(static_cast<size_t>(i % 3)) += static_cast<char>('0' + t);
        copy.edit(static_cast<size_t>((i + 1) % 3)) = own.front();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(list[0] + list[1] + list[2], "abc");
}

}  // namespace
}  // namespace hindcast::base
