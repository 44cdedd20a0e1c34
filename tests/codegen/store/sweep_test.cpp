// The size of the folder is bounded; the most recently used files stay.

#include "codegen/store/sweep.h"

#include "codegen/store/kernel_file.h"
#include "codegen/store/kernel_store.h"
#include "tests/codegen/store/temporary_folder.h"

#include <gtest/gtest.h>

namespace hindcast::codegen::store::sweep_test {
namespace {

namespace fs = std::filesystem;

const std::string kObject(1000 - kKernelFileHeaderSize, 'x');  // a file of 1,000 bytes

KernelKey key(int number) { return key_of({"kernel", std::to_string(number)}); }

// Room for five files; sweeps with every write.
struct Fixture {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path(), .max_size = 5000, .writes_per_sweep = 1}};

  fs::path file(int number) const { return folder.path() / file_name_of(key(number)); }
  void put(int number) { ASSERT_TRUE(store.write(key(number), kObject)); }
};

TEST(Sweep, DeletesWhatWasUnusedForLongest) {
  Fixture test;
  for (int i = 0; i < 5; ++i) {
    test.put(i);
    set_used(test.file(i), 1000 + i);
  }
  EXPECT_EQ(test.store.counts().swept, 0U);
  EXPECT_TRUE(test.store.read(key(0))) << "now the last used";
  test.put(5);
  EXPECT_EQ(test.store.counts().swept, 1U);
  EXPECT_TRUE(fs::exists(test.file(0)));
  EXPECT_FALSE(fs::exists(test.file(1)));
  EXPECT_TRUE(fs::exists(test.file(5)));
}

TEST(Sweep, KeepsTheFolderBelowItsSize) {
  Fixture test;
  for (int i = 0; i < 50; ++i) test.put(i);
  EXPECT_EQ(test.folder.names().size(), 5U);
  EXPECT_EQ(test.store.counts().swept, 45U);
}

TEST(Sweep, KeepsTheFolderBelowItsNumberOfFiles) {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path(), .max_files = 3, .writes_per_sweep = 1}};
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store.write(key(i), "a few bytes"));
  EXPECT_EQ(folder.names().size(), 3U);
  EXPECT_EQ(store.counts().swept, 7U);
}

TEST(Sweep, IsDueAtTheFirstWriteOfAProcess) {
  Fixture test;
  for (int i = 0; i < 5; ++i) {
    test.put(i);
    set_used(test.file(i), 1000 + i);
  }
  KernelStore later{{.folder = test.folder.path(), .max_size = 3000, .writes_per_sweep = 1000}};
  ASSERT_TRUE(later.write(key(5), kObject));
  EXPECT_EQ(test.folder.names().size(), 3U);
}

TEST(Sweep, IsNotDueAtEveryWrite) {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path(), .max_size = 1'000'000, .writes_per_sweep = 4}};
  ASSERT_TRUE(store.write(key(0), kObject));
  const fs::path left = folder.path() / (std::string(kTemporaryFilePrefix) + "1-0");
  put_file(left, "");
  set_used(left, 1000);
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(store.write(key(i), kObject));
  EXPECT_TRUE(fs::exists(left));
  ASSERT_TRUE(store.write(key(4), kObject));
  EXPECT_FALSE(fs::exists(left));
}

TEST(Sweep, LeavesFilesOfOthersAlone) {
  Fixture test;
  const fs::path foreign = test.folder.path() / "notes.txt";
  put_file(foreign, std::string(100'000, 'x'));
  set_used(foreign, 1000);
  for (int i = 0; i < 6; ++i) test.put(i);
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_EQ(test.folder.names().size(), 6U) << "five kernels and the notes";
}

TEST(Sweep, CountsFilesOfFormerFormats) {
  Fixture test;
  const fs::path former = test.folder.path() / (std::string(kKernelFilePrefix) + "0-abc" + kKernelFileSuffix);
  put_file(former, std::string(4500, 'x'));
  set_used(former, 1000);
  test.put(0);
  EXPECT_FALSE(fs::exists(former));
  EXPECT_TRUE(fs::exists(test.file(0)));
}

}  // namespace
}  // namespace hindcast::codegen::store::sweep_test
