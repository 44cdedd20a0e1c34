#include "cache/graph_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hindcast::cache {
namespace {

KeyBytes key_of(uint32_t number) {
  KeyBytes key;
  append(key, number);
  return key;
}

// A cache of numbers under keys built from numbers, with a short notation for tests.
struct Numbers {
  explicit Numbers(size_t max_entries = 100) : max_entries(max_entries) {}

  GraphCache<int>::Insertion put(uint32_t key, int value) {
    return cache.find_or_insert(view_of(key_of(key)), std::make_shared<int>(value), max_entries);
  }
  /// -1 if there is none.
  int get(uint32_t key) const {
    const KeyBytes bytes = key_of(key);
    const auto found = cache.find(view_of(bytes));
    return found ? *found : -1;
  }

  GraphCache<int> cache;
  size_t max_entries;
};

TEST(GraphCache, FindsWhatWasInserted) {
  Numbers numbers;
  EXPECT_EQ(numbers.get(1), -1);
  EXPECT_TRUE(numbers.put(1, 10).inserted);
  EXPECT_TRUE(numbers.put(2, 20).inserted);
  EXPECT_EQ(numbers.get(1), 10);
  EXPECT_EQ(numbers.get(2), 20);
  EXPECT_EQ(numbers.get(3), -1);
  EXPECT_EQ(numbers.cache.size(), 2);
}

TEST(GraphCache, TheFirstEntryOfAKeyStays) {
  Numbers numbers;
  const auto first = numbers.put(1, 10);
  const auto second = numbers.put(1, 11);
  EXPECT_FALSE(second.inserted);
  EXPECT_EQ(second.entry, first.entry);
  EXPECT_EQ(numbers.cache.size(), 1);
}

TEST(GraphCache, KeysOfOneHashAreKeptApart) {
  GraphCache<int> cache;
  const KeyHash hash{7, 7};
  const std::vector<uint8_t> a = {1, 2, 3}, b = {1, 2, 4}, longer = {1, 2, 3, 0}, absent = {9};
  cache.find_or_insert({hash, a}, std::make_shared<int>(1), 100);
  cache.find_or_insert({hash, b}, std::make_shared<int>(2), 100);
  cache.find_or_insert({hash, longer}, std::make_shared<int>(3), 100);
  EXPECT_EQ(*cache.find({hash, a}), 1);
  EXPECT_EQ(*cache.find({hash, b}), 2);
  EXPECT_EQ(*cache.find({hash, longer}), 3);
  EXPECT_EQ(cache.find({hash, absent}), nullptr);
}

TEST(GraphCache, TheLeastRecentlyUsedGoesFirst) {
  Numbers numbers(3);
  for (uint32_t key : {1, 2, 3}) numbers.put(key, static_cast<int>(key));
  numbers.get(1);
  EXPECT_EQ(numbers.put(4, 4).evicted, 1);
  EXPECT_EQ(numbers.get(2), -1);
  EXPECT_EQ(numbers.get(4), 4);
  EXPECT_EQ(numbers.get(3), 3);
  EXPECT_EQ(numbers.get(1), 1);
  numbers.put(4, 0);  // an insert that finds it counts as a use
  numbers.put(5, 5);
  EXPECT_EQ(numbers.get(3), -1);
  for (uint32_t key : {1, 4, 5}) EXPECT_EQ(numbers.get(key), static_cast<int>(key));
}

TEST(GraphCache, ASmallerBoundHoldsFromTheNextInsert) {
  Numbers numbers(10);
  for (uint32_t key = 0; key < 10; ++key) numbers.put(key, static_cast<int>(key));
  numbers.max_entries = 2;
  EXPECT_EQ(numbers.put(10, 10).evicted, 9);
  EXPECT_EQ(numbers.cache.size(), 2);
  for (uint32_t key : {9, 10}) EXPECT_EQ(numbers.get(key), static_cast<int>(key));
}

TEST(GraphCache, ABoundOfZeroKeepsNothing) {
  Numbers numbers(0);
  const auto insertion = numbers.put(1, 10);
  EXPECT_EQ(*insertion.entry, 10);
  EXPECT_TRUE(insertion.inserted);
  EXPECT_EQ(numbers.cache.size(), 0);
}

TEST(GraphCache, AnEvictedEntryLivesOnWithItsHolder) {
  Numbers numbers(1);
  const auto held = numbers.put(1, 10).entry;
  numbers.put(2, 20);
  EXPECT_EQ(numbers.get(1), -1);
  EXPECT_EQ(*held, 10);
}

TEST(GraphCache, ClearForgets) {
  Numbers numbers;
  for (uint32_t key : {1, 2, 3}) numbers.put(key, static_cast<int>(key));
  numbers.cache.clear();
  EXPECT_EQ(numbers.cache.size(), 0);
  EXPECT_TRUE(numbers.put(1, 11).inserted);
}

// An entry's destructor may run anything, even use the cache that just dropped it.
TEST(GraphCache, EntriesAreDestroyedOutsideTheLock) {
  struct Entry {
    GraphCache<Entry>* cache;
    size_t* seen;
    ~Entry() { *seen += cache->size(); }
  };
  size_t seen = 0;
  GraphCache<Entry> cache;
  const KeyBytes one = key_of(1), two = key_of(2), three = key_of(3);
  cache.find_or_insert(view_of(one), std::make_shared<Entry>(&cache, &seen), 1);
  cache.find_or_insert(view_of(two), std::make_shared<Entry>(&cache, &seen), 1);
  EXPECT_EQ(seen, 1);  // by eviction, when the new one was in
  cache.find_or_insert(view_of(three), std::make_shared<Entry>(&cache, &seen), 2);
  cache.clear();
  EXPECT_EQ(seen, 1);  // two and three; the map is empty by then
}

TEST(GraphCache, ThreadsThatMissTogetherGetOneEntry) {
  GraphCache<int> cache;
  const KeyBytes key = key_of(1);
  std::vector<std::shared_ptr<int>> got(4);
  std::atomic<int> inserted = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < got.size(); ++t) {
    threads.emplace_back([&, t] {
      const auto insertion = cache.find_or_insert(view_of(key), std::make_shared<int>(static_cast<int>(t)), 10);
      got[t] = insertion.entry;
      inserted += insertion.inserted;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inserted, 1);
  for (const auto& entry : got) EXPECT_EQ(entry, got[0]);
}

TEST(GraphCache, MayBeReadWhileItIsClearedAndFilled) {
  Numbers numbers(8);
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::atomic<uint64_t> hits = 0;
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        for (uint32_t key = 0; key < 12; ++key) {
          const int value = numbers.get(key);
          if (value == static_cast<int>(key) * 10)
            ++hits;
          else if (value != -1)
            ++wrong;
        }
      }
    });
  }
  for (int round = 0; round < 200 || hits == 0; ++round) {
    for (uint32_t key = 0; key < 12; ++key) numbers.put(key, static_cast<int>(key) * 10);
    if (round % 3 == 0) numbers.cache.clear();
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(numbers.cache.size(), 8);
}

}  // namespace
}  // namespace hindcast::cache
