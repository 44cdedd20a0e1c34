#include "cache/key.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace hindcast::cache {
namespace {

template <class... T>
KeyBytes bytes_of(const T&... values) {
  KeyBytes key;
  (append(key, values), ...);
  return key;
}

KeyBytes size_bytes(uint64_t value) {
  KeyBytes key;
  append_size(key, value);
  return key;
}

enum class Color : uint8_t { Red, Green };

TEST(KeyBytes, AppendsEachValueAsItsBytes) {
  const KeyBytes key = bytes_of(uint8_t{1}, uint16_t{0x0302}, true, Color::Green, int64_t{-1});
  const std::vector<uint8_t> expected = {1, 2, 3, 1, 1, 255, 255, 255, 255, 255, 255, 255, 255};
  EXPECT_EQ(std::vector<uint8_t>(key.begin(), key.end()), expected);
}

TEST(KeyBytes, FloatsCountByTheirBits) {
  EXPECT_NE(view_of(bytes_of(0.0)), view_of(bytes_of(-0.0)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const KeyBytes first = bytes_of(nan), second = bytes_of(nan);
  EXPECT_EQ(view_of(first), view_of(second));
}

TEST(KeyBytes, KeepsItsMemoryWhenCleared) {
  KeyBytes key;
  for (int i = 0; i < 10'000; ++i) append(key, i);
  const uint8_t* memory = key.data();
  key.clear();
  EXPECT_TRUE(key.empty());
  for (int i = 0; i < 10'000; ++i) append(key, i);
  EXPECT_EQ(key.data(), memory);
  EXPECT_EQ(key.size(), 40'000);
}

TEST(KeyBytes, GrowingKeepsWhatIsThere) {
  KeyBytes key;
  for (uint32_t i = 0; i < 5'000; ++i) append(key, static_cast<uint8_t>(i));
  for (uint32_t i = 0; i < 5'000; ++i) ASSERT_EQ(key[i], static_cast<uint8_t>(i));
}

TEST(KeyBytes, GoesBackToAnEarlierSize) {
  KeyBytes key = bytes_of(uint8_t{1});
  append(key, uint64_t{77});
  key.resize(1);
  key[0] = 9;
  EXPECT_EQ(view_of(key), view_of(bytes_of(uint8_t{9})));
  key.resize(3);
  EXPECT_EQ(view_of(key), view_of(bytes_of(uint8_t{9}, uint16_t{0})));
}

TEST(KeyBytes, ACopyIsIndependent) {
  KeyBytes key = bytes_of(uint8_t{1});
  KeyBytes copy = key;
  append(copy, uint8_t{2});
  EXPECT_EQ(key.size(), 1);
  key = copy;
  EXPECT_EQ(view_of(key), view_of(copy));
  EXPECT_NE(key.data(), copy.data());
}

TEST(AppendSize, TakesOneByteForSmallNumbers) {
  EXPECT_EQ(size_bytes(0).size(), 1);
  EXPECT_EQ(size_bytes(252).size(), 1);
  EXPECT_EQ(size_bytes(253).size(), 3);
  EXPECT_EQ(size_bytes(0xffff).size(), 3);
  EXPECT_EQ(size_bytes(0x10000).size(), 5);
  EXPECT_EQ(size_bytes(0xffffffff).size(), 5);
  EXPECT_EQ(size_bytes(0x100000000).size(), 9);
}

TEST(AppendSize, NoNumberBeginsAnother) {
  std::vector<KeyBytes> all;
  for (const uint64_t value :
       {0ull, 1ull, 252ull, 253ull, 254ull, 255ull, 256ull, 0xfdfdull, 0xffffull, 0x10000ull, 0xffffffffull, 0x100000000ull, ~0ull}) {
    all.push_back(size_bytes(value));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) {
      if (i == j || all[i].size() > all[j].size()) continue;
      EXPECT_FALSE(std::equal(all[i].begin(), all[i].end(), all[j].begin())) << i << " begins " << j;
    }
  }
}

TEST(AppendString, TheLengthKeepsNeighboursApart) {
  KeyBytes one, other;
  append_string(one, "ab");
  append_string(one, "c");
  append_string(other, "a");
  append_string(other, "bc");
  EXPECT_NE(view_of(one), view_of(other));
}

TEST(Key, EqualBytesAreEqualKeys) {
  const KeyBytes bytes = bytes_of(1, 2, 3);
  const KeyBytes same = bytes_of(1, 2, 3);
  EXPECT_EQ(Key(view_of(bytes)), Key(view_of(same)));
  EXPECT_EQ(view_of(bytes).hash, view_of(same).hash);
}

TEST(Key, AnyOtherByteIsAnotherKey) {
  const KeyBytes bytes = bytes_of(1, 2, 3);
  for (size_t i = 0; i < bytes.size(); ++i) {
    KeyBytes other = bytes;
    other[i] ^= 1;
    EXPECT_NE(Key(view_of(bytes)), Key(view_of(other))) << i;
    EXPECT_NE(view_of(bytes).hash, view_of(other).hash) << i;
  }
}

TEST(Key, EqualHashesDoNotMakeEqualKeys) {
  const std::vector<uint8_t> a = {1, 2}, b = {1, 3}, shorter = {1};
  const KeyHash hash{42, 42};
  EXPECT_NE(Key({hash, a}), Key({hash, b}));
  EXPECT_NE(Key({hash, a}), Key({hash, shorter}));
  EXPECT_EQ(Key({hash, a}), Key({hash, a}));
}

TEST(Key, OwnsItsBytes) {
  KeyBytes bytes = bytes_of(1, 2, 3);
  const Key key(view_of(bytes));
  bytes.clear();
  append(bytes, 9);
  EXPECT_EQ(key, Key(view_of(bytes_of(1, 2, 3))));
}

TEST(Key, TheEmptyKeyIsAKey) { EXPECT_EQ(Key(view_of(KeyBytes())), Key(view_of(KeyBytes()))); }

}  // namespace
}  // namespace hindcast::cache
