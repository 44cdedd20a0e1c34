// Blocks that a thread has freed, and reuses.

#include "codegen/cpu/memory/small_blocks.h"

#include "tests/codegen/cpu/memory/counting_allocator.h"

#include <c10/core/alignment.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace hindcast::codegen::cpu::small_blocks_test {
namespace {

using small_blocks::allocate;
using small_blocks::held_bytes;
using small_blocks::kLargest;
using small_blocks::kMost;
using small_blocks::kMostBytes;

/// The address of a request whose block is freed immediately.
void* address_of(size_t bytes) { return allocate(bytes).get(); }

class SmallBlocks : public testing::Test {
 protected:
  void SetUp() override { small_blocks::trim(); }
  void TearDown() override { small_blocks::trim(); }
};

TEST_F(SmallBlocks, AFreedBlockServesTheNextRequestOfItsSize) {
  void* const first = address_of(1000);
  EXPECT_EQ(held_bytes(), 1000U);
  EXPECT_EQ(address_of(1000), first);
  const c10::DataPtr other = allocate(1004);
  EXPECT_NE(other.get(), first);
  EXPECT_EQ(held_bytes(), 1000U);
}

TEST_F(SmallBlocks, BlocksInUseAreApartAndAligned) {
  std::vector<c10::DataPtr> blocks;
  for (size_t bytes = 1; bytes <= kLargest; bytes *= 2) {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(allocate(bytes));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().get()) % c10::gAlignment, 0U);
      std::memset(blocks.back().get(), static_cast<int>(blocks.size()), bytes);
    }
  }
  size_t number = 0;
  for (size_t bytes = 1; bytes <= kLargest; bytes *= 2) {
    for (int i = 0; i < 3; ++i) {
      const auto* const data = static_cast<const unsigned char*>(blocks[number++].get());
      EXPECT_TRUE(std::all_of(data, data + bytes, [&](unsigned char byte) { return byte == number; })) << bytes;
    }
  }
}

TEST_F(SmallBlocks, WhatIsKeptIsBounded) {
  const CountingAllocator counting;
  for (const size_t bytes : {size_t{1}, kLargest / 2, kLargest}) {
    std::vector<c10::DataPtr> blocks;
    for (size_t i = 0; i < 3 * kMost; ++i) blocks.push_back(allocate(bytes));
    blocks.clear();
    EXPECT_LE(held_bytes(), std::min(kMostBytes, kMost * kLargest));
    EXPECT_LE(CountingAllocator::live(), static_cast<int64_t>(kMostBytes + kMost * c10::gAlignment));
  }
  for (size_t bytes = 1; bytes < 10000; ++bytes) address_of(bytes);  // a new size each time
  EXPECT_LE(held_bytes(), kMostBytes);
  const auto held = static_cast<int64_t>(held_bytes());
  EXPECT_EQ(small_blocks::trim(), static_cast<size_t>(held));
  EXPECT_EQ(held_bytes(), 0U);
  EXPECT_EQ(CountingAllocator::live(), 0);
}

TEST_F(SmallBlocks, TheNewestStay) {
  std::vector<c10::DataPtr> blocks;
  for (size_t bytes = 1; bytes <= 2 * kMost; ++bytes) blocks.push_back(allocate(bytes));
  void* const last = blocks.back().get();
  for (c10::DataPtr& block : blocks) block.clear();
  EXPECT_EQ(address_of(2 * kMost), last);
}

// A thread keeps what it frees until it ends; what outlives the thread is freed too.
TEST_F(SmallBlocks, EndWithTheirThread) {
  const CountingAllocator counting;
  c10::DataPtr outlives, freed_there = allocate(2000);
  std::thread([&] {
    for (int i = 0; i < 10; ++i) address_of(1000);
    freed_there.clear();
    EXPECT_EQ(held_bytes(), 3000U);
    outlives = allocate(500);
  }).join();
  EXPECT_EQ(held_bytes(), 0U);
  EXPECT_EQ(CountingAllocator::live(), static_cast<int64_t>(500 + c10::gAlignment));
  outlives.clear();
  EXPECT_EQ(held_bytes(), 500U);
  small_blocks::trim();
  EXPECT_EQ(CountingAllocator::live(), 0);
}

struct FreesLate {
  c10::DataPtr block;
  ~FreesLate() { block.clear(); }
};

TEST_F(SmallBlocks, MayBeFreedBehindTheThreadsOwnVariables) {
  const CountingAllocator counting;
  std::thread([] {
    static thread_local FreesLate late;  // is constructed first, and so is destroyed last
    late.block = {};
    address_of(100);
    late.block = allocate(300);
  }).join();
  EXPECT_EQ(CountingAllocator::live(), 0);
}

TEST_F(SmallBlocks, ThreadsExchangeBlocks) {
  std::vector<std::thread> threads;
  std::vector<c10::DataPtr> made(8);
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < made.size(); ++i) {
      threads.emplace_back([&made, i] {
        made[i] = allocate(4096);
        std::memset(made[i].get(), static_cast<int>(i), 4096);
      });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(static_cast<char*>(made[i].get())[4095], static_cast<char>(i));
    for (size_t i = 0; i < made.size(); ++i) threads.emplace_back([&made, i] { made[made.size() - 1 - i].clear(); });
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
}

}  // namespace
}  // namespace hindcast::codegen::cpu::small_blocks_test
