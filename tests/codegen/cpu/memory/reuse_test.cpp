// Which buffer serves a request, and which requests bypass the recycler.

#include "codegen/cpu/memory/recycler.h"
#include "codegen/cpu/memory/small_blocks.h"

#include "tests/codegen/cpu/memory/counting_allocator.h"

#include <c10/core/alignment.h>
#include <gtest/gtest.h>

#include <new>

namespace hindcast::codegen::cpu::reuse_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

Recycler::Limits limits() { return {.smallest = kMiB, .held = 64 * kMiB, .patience = 1000}; }

/// The address of a request whose buffer is freed immediately.
void* address_of(Recycler& recycler, size_t bytes) { return recycler.allocate(bytes).get(); }

TEST(Recycler, GivesAFreedBufferToTheNextRequest) {
  Recycler recycler(limits());
  void* const first = address_of(recycler, 4 * kMiB);
  EXPECT_EQ(address_of(recycler, 4 * kMiB), first);
  EXPECT_EQ(recycler.counts().fresh, 1U);
  EXPECT_EQ(recycler.counts().reused, 1U);
  EXPECT_EQ(recycler.counts().held_bytes, 4 * kMiB);
  EXPECT_EQ(recycler.counts().held_buffers, 1U);
}

TEST(Recycler, TakesTheSmallestThatIsLargeEnough) {
  Recycler recycler(limits());
  void* large = nullptr;
  void* fitting = nullptr;
  {
    const c10::DataPtr a = recycler.allocate(12 * kMiB), b = recycler.allocate(11 * kMiB), c = recycler.allocate(9 * kMiB);
    large = a.get();
    fitting = b.get();
  }
  const c10::DataPtr first = recycler.allocate(10 * kMiB), second = recycler.allocate(10 * kMiB), third = recycler.allocate(10 * kMiB);
  EXPECT_EQ(first.get(), fitting);
  EXPECT_EQ(second.get(), large);
  EXPECT_EQ(recycler.counts().fresh, 4U);
}

TEST(Recycler, TakesNoneThatIsMoreThanAQuarterLarger) {
  Recycler recycler(limits());
  address_of(recycler, 5 * kMiB + 1);
  address_of(recycler, 4 * kMiB);
  EXPECT_EQ(recycler.counts().reused, 0U);
  address_of(recycler, 4 * kMiB + 1);
  EXPECT_EQ(recycler.counts().reused, 1U);
}

TEST(Recycler, TakesTheOneFreedLastOfEquals) {
  Recycler recycler(limits());
  c10::DataPtr a = recycler.allocate(kMiB), b = recycler.allocate(kMiB);
  void* const last = a.get();
  b.clear();
  a.clear();
  EXPECT_EQ(address_of(recycler, kMiB), last);
}

TEST(Recycler, AlignsAsLibTorchDoes) {
  Recycler recycler(limits());
  for (const size_t bytes : {kMiB, kMiB + 1, 40 * kMiB}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address_of(recycler, bytes)) % c10::gAlignment, 0U) << bytes;
  }
}

TEST(Recycler, LetsSmallRequestsPass) {
  Recycler recycler(limits());
  CountingAllocator counting;
  for (const size_t bytes : {size_t{0}, small_blocks::kLargest + 1, kMiB - 1}) {
    const c10::DataPtr data = recycler.allocate(bytes);
    EXPECT_EQ(CountingAllocator::live(), static_cast<int64_t>(bytes));
    EXPECT_EQ(data.device().type(), c10::DeviceType::CPU);
  }
  EXPECT_EQ(CountingAllocator::live(), 0);
  EXPECT_EQ(recycler.counts().fresh, 0U);
}

TEST(Recycler, LetsRequestsPassThatItCouldNeverHold) {
  Recycler recycler(limits());
  CountingAllocator counting;
  recycler.allocate(64 * kMiB + 1);
  EXPECT_EQ(CountingAllocator::live(), 0);
  EXPECT_EQ(recycler.counts().fresh, 0U);
  counting.limit = 128 * kMiB;
  for (const size_t bytes : {size_t{1} << 60, SIZE_MAX}) EXPECT_THROW(recycler.allocate(bytes), std::bad_alloc);
}

TEST(Recycler, TakesItsMemoryFromLibTorchsAllocator) {
  CountingAllocator counting;
  constexpr size_t kBlock = kMiB + c10::gAlignment;
  {
    Recycler recycler(limits());
    recycler.allocate(kMiB);
    recycler.allocate(kMiB);
    EXPECT_EQ(CountingAllocator::live(), static_cast<int64_t>(kBlock));
    EXPECT_EQ(recycler.trim(), kMiB);
    EXPECT_EQ(CountingAllocator::live(), 0);
    recycler.allocate(kMiB);
  }
  EXPECT_EQ(CountingAllocator::live(), 0);
}

}  // namespace
}  // namespace hindcast::codegen::cpu::reuse_test
