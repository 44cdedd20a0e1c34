// How much memory is held, for how long, and what the counters report.

#include "codegen/cpu/memory/recycler.h"

#include "tests/codegen/cpu/memory/counting_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::vector<c10::DataPtr> allocate(Recycler& recycler, const std::vector<size_t>& sizes) {
  std::vector<c10::DataPtr> buffers;
  for (const size_t bytes : sizes) buffers.push_back(recycler.allocate(bytes));
  return buffers;
}

TEST(RecyclerBounds, TheOldestGoFirst) {
  Recycler recycler({.smallest = kMiB, .held = 8 * kMiB, .patience = 1000});
  std::vector<c10::DataPtr> buffers = allocate(recycler, {2 * kMiB, 3 * kMiB, 4 * kMiB});
  void* const newest = buffers[2].get();
  for (c10::DataPtr& buffer : buffers) buffer.clear();
  EXPECT_EQ(recycler.counts().held_bytes, 7 * kMiB);  // without the first
  EXPECT_EQ(recycler.counts().held_buffers, 2U);
  EXPECT_EQ(recycler.counts().returned, 1U);
  EXPECT_EQ(recycler.allocate(4 * kMiB).get(), newest);
}

TEST(RecyclerBounds, OneThatFillsTheBoundIsHeldAlone) {
  Recycler recycler({.smallest = kMiB, .held = 8 * kMiB, .patience = 1000});
  allocate(recycler, {2 * kMiB, 8 * kMiB});
  EXPECT_EQ(recycler.counts().held_bytes, 8 * kMiB);
  EXPECT_EQ(recycler.counts().held_buffers, 1U);
}

TEST(RecyclerBounds, ABufferThatNobodyAsksForGoes) {
  Recycler recycler({.smallest = kMiB, .held = 64 * kMiB, .patience = 10});
  allocate(recycler, {2 * kMiB, 4 * kMiB});
  for (int i = 0; i < 10; ++i) recycler.allocate(2 * kMiB);
  EXPECT_EQ(recycler.counts().held_buffers, 2U);
  recycler.allocate(2 * kMiB);
  EXPECT_EQ(recycler.counts().held_buffers, 1U);
  EXPECT_EQ(recycler.counts().held_bytes, 2 * kMiB);
}

TEST(RecyclerBounds, ATrainerWhoseSizesChangeKeepsToTwiceWhatItNeeds) {
  CountingAllocator counting;
  Recycler recycler({.smallest = kMiB / 16, .held = 64 * kMiB, .patience = 1000});
  std::mt19937 random(7);
  size_t most = 0;
  for (int step = 0; step < 300; ++step) {
    const size_t bytes = kMiB / 16 + random() % kMiB;
    most = std::max(most, 4 * bytes);
    allocate(recycler, std::vector<size_t>(4, bytes));
    const RecyclerCounts counts = recycler.counts();
    EXPECT_LE(counts.held_bytes, 2 * most);
    EXPECT_EQ(CountingAllocator::live(), static_cast<int64_t>(counts.held_bytes + counts.held_buffers * 64));
  }
  EXPECT_LE(CountingAllocator::most(), static_cast<int64_t>(2 * most + 1000 * 64));
}

TEST(RecyclerBounds, SizesThatHalveAreAllThereInTheNextStep) {
  Recycler recycler({.smallest = kMiB, .held = 64 * kMiB, .patience = 1000});
  const auto step = [&] {
    c10::DataPtr last;
    for (const size_t bytes : {8 * kMiB, 8 * kMiB, 4 * kMiB, 4 * kMiB, 2 * kMiB, 2 * kMiB}) last = recycler.allocate(bytes);
  };
  step();
  const uint64_t fresh = recycler.counts().fresh;
  step();
  EXPECT_EQ(recycler.counts().fresh, fresh);
}

TEST(RecyclerBounds, TrimReturnsWhatIsFreeAndForgetsWhatWasAskedFor) {
  Recycler recycler({.smallest = kMiB, .held = 64 * kMiB, .patience = 1000});
  const c10::DataPtr in_use = recycler.allocate(kMiB);
  allocate(recycler, {2 * kMiB, 30 * kMiB});
  EXPECT_EQ(recycler.trim(), 32 * kMiB);
  EXPECT_EQ(recycler.trim(), 0U);
  EXPECT_EQ(recycler.counts().held_bytes, 0U);
  EXPECT_EQ(recycler.counts().returned, 2U);
  for (const size_t bytes : {2 * kMiB, 3 * kMiB, 4 * kMiB, 5 * kMiB}) recycler.allocate(bytes);
  EXPECT_EQ(recycler.counts().held_bytes, 9 * kMiB);  // 6 MiB was the peak: with 1 + 5 in use, 2 and 3 had to be freed
}

TEST(RecyclerBounds, WhatIsFreeGoesBeforeMemoryRunsOut) {
  Recycler recycler({.smallest = kMiB, .held = 64 * kMiB, .patience = 1000});
  allocate(recycler, {2 * kMiB, 3 * kMiB});
  CountingAllocator counting;
  counting.limit = 8 * kMiB;
  EXPECT_THROW(recycler.allocate(9 * kMiB), std::bad_alloc);
  EXPECT_EQ(recycler.counts().held_buffers, 0U);
  EXPECT_EQ(recycler.counts().fresh, 2U);
  EXPECT_THROW(recycler.allocate(9 * kMiB), std::bad_alloc);
  counting.limit = SIZE_MAX;
  recycler.allocate(9 * kMiB);
  EXPECT_EQ(recycler.counts().fresh, 3U);
  EXPECT_EQ(recycler.counts().held_bytes, 9 * kMiB);
}

TEST(RecyclerBounds, CountersStartAgain) {
  Recycler recycler({.smallest = kMiB, .held = 4 * kMiB, .patience = 1000});
  allocate(recycler, {3 * kMiB, 4 * kMiB});
  recycler.allocate(4 * kMiB);
  recycler.reset_counts();
  const RecyclerCounts counts = recycler.counts();
  EXPECT_EQ(counts.reused + counts.fresh + counts.returned, 0U);
  EXPECT_EQ(counts.held_bytes, 4 * kMiB);
  EXPECT_EQ(counts.held_buffers, 1U);
}

TEST(RecyclerBounds, TheProcessHoldsAtMostAQuarterOfAGibibyte) {
  EXPECT_LE(Recycler::default_held(), 256 * kMiB);
  EXPECT_GT(Recycler::default_held(), kMiB);
}

}  // namespace
}  // namespace hindcast::codegen::cpu
