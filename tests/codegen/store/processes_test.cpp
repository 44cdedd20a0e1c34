// Several processes on one folder, and processes that are killed.

#include "codegen/store/kernel_store.h"

#include "codegen/store/sweep.h"
#include "tests/codegen/store/temporary_folder.h"
#include "tests/support/in_child.h"

#include <gtest/gtest.h>

#include <csignal>

namespace hindcast::codegen::store::processes_test {
namespace {

using tests::in_child;

namespace fs = std::filesystem;

const KernelKey kKey = key_of({"a kernel"});

TEST(StoreProcesses, TwoMayWriteAndReadOneKeyAtOnce) {
  TemporaryFolder folder;
  const std::string object(200'000, 'x');
  const auto work = [&] {
    KernelStore store{{.folder = folder.path()}};
    for (int i = 0; i < 100; ++i) {
      if (!store.write(kKey, object)) return 1;
      if (store.read(kKey) != object) return 2;
    }
    return store.counts().corrupt == 0 ? 0 : 3;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(work());
  EXPECT_EQ(work(), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder.names(), std::vector<std::string>{file_name_of(kKey)});
}

TEST(StoreProcesses, AChildMayUseItsParentsStore) {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path()}};
  ASSERT_TRUE(store.write(kKey, "parent"));
  EXPECT_EQ(in_child([&] { return store.read(kKey) == "parent" && store.write(kKey, "child") ? 0 : 1; }), 0);
  EXPECT_EQ(store.read(kKey), "child");
}

TEST(StoreProcesses, OneKilledAtAnyTimeDoesNoHarm) {
  TemporaryFolder folder;
  const std::string object(500'000, 'x');
  KernelStore store{{.folder = folder.path()}};
  for (int i = 0; i < 20; ++i) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (bool first = true;; first = false) {
        store.write(kKey, object);
        if (first && ::write(ready[1], "x", 1) != 1) _exit(1);
      }
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);  // most likely during a write
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    ASSERT_EQ(store.read(kKey), object);
  }
}

TEST(StoreProcesses, WhatAKilledOneLeftIsSweptAfterAnHour) {
  TemporaryFolder folder;
  const fs::path old = folder.path() / (std::string(kTemporaryFilePrefix) + "123-0");
  const fs::path fresh = folder.path() / (std::string(kTemporaryFilePrefix) + "123-1");
  put_file(old, "half an obj");
  put_file(fresh, "half an obj");
  set_used(old, time(nullptr) - 7200);
  KernelStore store{{.folder = folder.path()}};
  EXPECT_FALSE(store.read(kKey));
  EXPECT_TRUE(store.write(kKey, "object"));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "somebody may be writing it";
  EXPECT_EQ(store.counts().swept, 1U);
}

TEST(StoreProcesses, ATemporaryFileWithOurNumberIsNotWrittenTo) {
  TemporaryFolder folder;
  KernelStore store{{.folder = folder.path()}};
  for (int i = 0; i < 99; ++i) {
    const std::string name = std::string(kTemporaryFilePrefix) + std::to_string(getpid()) + "-" + std::to_string(i);
    put_file(folder.path() / name, "another's");
  }
  EXPECT_TRUE(store.write(kKey, "object"));
  EXPECT_EQ(store.read(kKey), "object");
  for (const std::string& name : folder.names()) {
    if (name == file_name_of(kKey)) continue;
    EXPECT_EQ(contents_of(folder.path() / name), "another's") << name;
  }
}

}  // namespace
}  // namespace hindcast::codegen::store::processes_test
