#include "codegen/store/kernel_store.h"

#include "tests/codegen/store/temporary_folder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hindcast::codegen::store {
namespace {

TEST(KernelStoreThreads, MayReadAndWriteOneKeyAtOnce) {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path(), .writes_per_sweep = 3}};
  const KernelKey key = key_of({"a kernel"});
  const std::string object(10'000, 'x');
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        if (!store.write(key, object)) ++wrong;
        if (store.read(key) != object) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.counts().writes, 200U);
  EXPECT_EQ(store.counts().hits, 200U);
  EXPECT_EQ(folder.names().size(), 1U);
}

}  // namespace
}  // namespace hindcast::codegen::store
