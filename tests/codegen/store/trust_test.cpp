// What is read is run as machine code: whom the store trusts, and what it does where it may not write.

#include "codegen/store/kernel_store.h"

#include "tests/codegen/store/temporary_folder.h"
#include "tests/support/in_child.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>

namespace hindcast::codegen::store::trust_test {
namespace {

using tests::in_child;

namespace fs = std::filesystem;

const KernelKey kKey = key_of({"a kernel"});
const std::string kObject = "object";

struct Fixture {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path()}};
  fs::path file = folder.path() / file_name_of(kKey);
};

TEST(StoreTrust, RefusesAFolderThatOthersCanWriteTo) {
  for (const mode_t mode : {0770, 0707, 0702, 01777}) {
    Fixture test;
    ASSERT_TRUE(test.store.write(kKey, kObject));
    ASSERT_EQ(chmod(test.folder.path().c_str(), mode), 0);
    EXPECT_NE(test.store.problem().find("other users may write to it"), std::string::npos) << test.store.problem();
    EXPECT_FALSE(test.store.read(kKey));
    EXPECT_FALSE(test.store.write(kKey, kObject));
    EXPECT_EQ(test.store.counts().refused, 2U);
    EXPECT_EQ(test.folder.names().size(), 1U);
  }
}

TEST(StoreTrust, RefusesSomebodyElsesFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  ASSERT_EQ(chown(test.folder.path().c_str(), 1, 1), 0);
  EXPECT_NE(test.store.problem().find("belongs to another user"), std::string::npos) << test.store.problem();
  EXPECT_FALSE(test.store.read(kKey));
  EXPECT_FALSE(test.store.write(kKey, kObject));
  EXPECT_EQ(test.store.counts().refused, 2U);
}

TEST(StoreTrust, RefusesSomebodyElsesFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  ASSERT_EQ(chown(test.file.c_str(), 1, 1), 0);
  EXPECT_FALSE(test.store.read(kKey));
  EXPECT_EQ(test.store.counts().refused, 1U);
}

TEST(StoreTrust, RefusesAFileThatOthersCanWriteTo) {
  for (const mode_t mode : {0620, 0602}) {
    Fixture test;
    ASSERT_TRUE(test.store.write(kKey, kObject));
    ASSERT_EQ(chmod(test.file.c_str(), mode), 0);
    EXPECT_FALSE(test.store.read(kKey));
    EXPECT_EQ(test.store.counts().refused, 1U);
    EXPECT_TRUE(test.store.write(kKey, kObject)) << "replaces it";
    EXPECT_EQ(test.store.read(kKey), kObject);
  }
}

TEST(StoreTrust, FollowsNoLinkToAFile) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  const fs::path elsewhere = test.folder.path() / "elsewhere";
  fs::rename(test.file, elsewhere);
  fs::create_symlink(elsewhere, test.file);
  EXPECT_FALSE(test.store.read(kKey));
  EXPECT_EQ(test.store.counts().refused, 1U);

  put_file(elsewhere, "untouched");
  EXPECT_TRUE(test.store.write(kKey, kObject));
  EXPECT_EQ(contents_of(elsewhere), "untouched");
  EXPECT_EQ(test.store.read(kKey), kObject);
}

TEST(StoreTrust, DoesNotWaitForAPipe) {
  Fixture test;
  ASSERT_EQ(mkfifo(test.file.c_str(), 0600), 0);
  EXPECT_FALSE(test.store.read(kKey));
  EXPECT_EQ(test.store.counts().refused, 1U);
}

TEST(StoreTrust, AFileInTheFoldersPlaceIsNotTouched) {
  TemporaryFolder outer;
  const fs::path file = outer.path() / "file";
  put_file(file, "untouched");
  KernelStore store{{.folder = file}};
  EXPECT_NE(store.problem().find("is not a folder"), std::string::npos) << store.problem();
  EXPECT_FALSE(store.read(kKey));
  EXPECT_FALSE(store.write(kKey, kObject));
  EXPECT_EQ(contents_of(file), "untouched");
}

TEST(StoreFailures, AFolderThatMayNotBeWrittenToIsStillRead) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  ASSERT_EQ(chmod(test.folder.path().c_str(), 0500), 0);
  const auto body = [&] {
    // Root may write anywhere, so it becomes another user, who gets the folder and its file.
    if (geteuid() == 0) {
      if (chown(test.folder.path().c_str(), 1, 1) != 0 || chown(test.file.c_str(), 1, 1) != 0 || setuid(1) != 0) return 10;
    }
    if (test.store.read(kKey) != kObject) return 1;
    if (test.store.write(kKey, kObject)) return 2;
    if (test.store.write(key_of({"another"}), kObject)) return 3;
    return test.store.counts().write_failures == 2 ? 0 : 4;
  };
  EXPECT_EQ(in_child(body), 0);
}

TEST(StoreFailures, AFileThatCannotBeReadIsLeftAlone) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  ASSERT_EQ(chmod(test.file.c_str(), 0), 0);
  const auto body = [&] {
    if (geteuid() == 0) {
      if (chown(test.folder.path().c_str(), 1, 1) != 0 || chown(test.file.c_str(), 1, 1) != 0 || setuid(1) != 0) return 10;
    }
    if (test.store.read(kKey)) return 1;
    return test.store.counts().read_failures == 1 && fs::exists(test.file) ? 0 : 2;
  };
  EXPECT_EQ(in_child(body), 0);
}

TEST(StoreFailures, AFullDiskCostsTheWriteAndLeavesNothingBehind) {
  Fixture test;
  const auto body = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    if (test.store.write(kKey, std::string(5000, 'x'))) return 1;
    if (test.store.counts().write_failures != 1) return 2;
    if (!test.folder.names().empty()) return 3;
    return test.store.write(kKey, kObject) && test.store.read(kKey) == kObject ? 0 : 4;
  };
  EXPECT_EQ(in_child(body), 0);
}

TEST(StoreFailures, WithoutDescriptorsOnlyTheStoreIsLost) {
  Fixture test;
  ASSERT_TRUE(test.store.write(kKey, kObject));
  const auto body = [&] {
    const rlimit limit = {0, 0};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 10;
    if (test.store.read(kKey) || test.store.write(kKey, kObject)) return 1;
    return test.store.counts().read_failures == 1 && test.store.counts().write_failures == 1 ? 0 : 2;
  };
  EXPECT_EQ(in_child(body), 0);
}

}  // namespace
}  // namespace hindcast::codegen::store::trust_test
