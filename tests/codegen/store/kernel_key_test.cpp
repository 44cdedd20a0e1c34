#include "codegen/store/kernel_key.h"

#include <gtest/gtest.h>

#include <string>

namespace hindcast::codegen::store {
namespace {

TEST(KernelKey, EveryPartCounts) {
  const KernelKey key = key_of({"source", "device", "clang"});
  EXPECT_EQ(key, key_of({"source", "device", "clang"}));
  EXPECT_NE(key, key_of({"sourcf", "device", "clang"}));
  EXPECT_NE(key, key_of({"source", "", "clang"}));
  EXPECT_NE(key, key_of({"source", "device", "clang", ""}));
  EXPECT_NE(key, key_of({"device", "source", "clang"}));
}

TEST(KernelKey, WhereOnePartEndsCounts) {
  EXPECT_NE(key_of({"ab", "c"}), key_of({"a", "bc"}));
  EXPECT_NE(key_of({""}), key_of(std::span<const std::string_view>()));
}

TEST(KernelKey, IsWrittenWithAllOfItsDigits) {
  EXPECT_EQ(text_of({.low = 0xab, .high = uint64_t{1} << 60}), "100000000000000000000000000000ab");
}

}  // namespace
}  // namespace hindcast::codegen::store
