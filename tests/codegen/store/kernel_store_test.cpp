// The store returns what was written, or nothing.

#include "codegen/store/kernel_store.h"

#include "codegen/store/kernel_file.h"
#include "tests/codegen/store/temporary_folder.h"

#include <gtest/gtest.h>

namespace hindcast::codegen::store {
namespace {

namespace fs = std::filesystem;

const KernelKey kKey = key_of({"a kernel"});
const std::string kObject(
    "\x7f"
    "ELF and\0zeros",
    14);

struct Fixture {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path()}};
  fs::path file = folder.path() / file_name_of(kKey);
};

/// A miss that is reported as corrupt, and that the next write repairs.
void expect_corrupt_then_repaired(Fixture& test, const std::string& what) {
  const uint64_t before = test.store.counts().corrupt;
  EXPECT_FALSE(test.store.read(kKey)) << what;
  EXPECT_EQ(test.store.counts().corrupt, before + 1) << what;
  EXPECT_TRUE(fs::exists(test.file)) << what;
  EXPECT_TRUE(test.store.write(kKey, kObject)) << what;
  EXPECT_EQ(test.store.read(kKey), kObject) << what;
}

TEST(KernelStore, GivesBackWhatWasWritten) {
  Fixture test;
  EXPECT_EQ(test.store.problem(), "");
  EXPECT_FALSE(test.store.read(kKey));
  EXPECT_TRUE(test.store.write(kKey, kObject));
  EXPECT_EQ(test.store.read(kKey), kObject);
  EXPECT_FALSE(test.store.read(key_of({"another kernel"})));
  const StoreCounts counts = test.store.counts();
  EXPECT_EQ(counts.hits, 1U);
  EXPECT_EQ(counts.misses, 2U);
  EXPECT_EQ(counts.writes, 1U);
  EXPECT_EQ(counts.corrupt + counts.refused + counts.read_failures + counts.write_failures + counts.swept, 0U);
}

TEST(KernelStore, IsSharedByAllThatUseTheFolder) {
  Fixture test;
  EXPECT_TRUE(test.store.write(kKey, kObject));
  KernelStore other{{.folder = test.folder.path()}};
  EXPECT_EQ(other.read(kKey), kObject);
}

TEST(KernelStore, KeepsAnEmptyObject) {
  Fixture test;
  EXPECT_TRUE(test.store.write(kKey, ""));
  EXPECT_EQ(test.store.read(kKey), "");
}

TEST(KernelStore, LeavesOneFileThatOnlyItsOwnerCanRead) {
  Fixture test;
  EXPECT_TRUE(test.store.write(kKey, kObject));
  EXPECT_EQ(test.folder.names(), std::vector<std::string>{file_name_of(kKey)});
  EXPECT_EQ(fs::status(test.file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(KernelStore, MissesAFileThatIsCutShortAnywhere) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  const std::string bytes = contents_of(test.file);
  ASSERT_EQ(bytes.size(), kKernelFileHeaderSize + kObject.size());
  for (size_t size = 0; size < bytes.size(); ++size) {
    put_file(test.file, bytes.substr(0, size));
    expect_corrupt_then_repaired(test, "cut to " + std::to_string(size));
  }
}

TEST(KernelStore, MissesAFileThatGoesOn) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  put_file(test.file, contents_of(test.file) + '\0');
  expect_corrupt_then_repaired(test, "one byte more");
}

TEST(KernelStore, MissesAFileWithAnyByteChanged) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  const std::string bytes = contents_of(test.file);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 7}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      put_file(test.file, changed);
      expect_corrupt_then_repaired(test, "byte " + std::to_string(i) + ", bit " + std::to_string(bit));
    }
  }
}

TEST(KernelStore, MissesAFileOfAnotherKind) {
  Fixture test;
  put_file(test.file, std::string(4096, 'x'));
  expect_corrupt_then_repaired(test, "foreign");
}

TEST(KernelStore, MissesAnotherKernelsFileUnderItsName) {
  Fixture test;
  const KernelKey other = key_of({"another kernel"});
  ASSERT_TRUE(test.store.write(other, "other"));
  fs::rename(test.folder.path() / file_name_of(other), test.file);
  expect_corrupt_then_repaired(test, "renamed");
}

TEST(KernelStore, DoesNotReadAFileLargerThanAnyKernel) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  fs::resize_file(test.file, uint64_t{1} << 40);  // sparse: no disk could hold it
  expect_corrupt_then_repaired(test, "a terabyte");
}

TEST(KernelStore, RefusesToWriteAnObjectLargerThanAnyKernel) {
  Fixture test;
  EXPECT_FALSE(test.store.write(kKey, std::string(kMaxObjectSize + 1, 'x')));
  EXPECT_EQ(test.store.counts().write_failures, 1U);
}

TEST(KernelStore, MakesItsFolderAgainWhenItIsDeleted) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  fs::remove_all(test.folder.path());
  EXPECT_FALSE(test.store.read(kKey));
  EXPECT_TRUE(test.store.write(kKey, kObject));
  EXPECT_EQ(test.store.read(kKey), kObject);
  EXPECT_EQ(test.store.counts().read_failures, 0U);
}

TEST(KernelStore, MakesFoldersThatOnlyItsOwnerCanUse) {
  TemporaryFolder outer;
  const fs::path folder = outer.path() / "a" / "b";
  KernelStore store{{.folder = folder}};
  EXPECT_FALSE(store.read(kKey));
  EXPECT_FALSE(fs::exists(folder)) << "a read makes nothing";
  EXPECT_TRUE(store.write(kKey, kObject));
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  EXPECT_EQ(store.read(kKey), kObject);
}

TEST(KernelStore, WithoutAFolderKeepsNothing) {
  KernelStore store{{.folder = ""}};
  EXPECT_NE(store.problem().find("HINDCAST_CACHE_DIR"), std::string::npos) << store.problem();
  EXPECT_FALSE(store.write(kKey, kObject));
  EXPECT_FALSE(store.read(kKey));
  EXPECT_EQ(store.counts().write_failures, 0U);
}

}  // namespace
}  // namespace hindcast::codegen::store
