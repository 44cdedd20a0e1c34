#include "codegen/cpu/memory/recycler.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

constexpr size_t kSmallest = size_t{16} << 10;
constexpr int kThreads = 4;
constexpr int kRequests = 2000;

/// Where threads leave buffers for each other, so that many are freed on another thread than the allocating one.
struct Shelf {
  struct Place {
    std::mutex mutex;
    c10::DataPtr buffer;
    size_t bytes = 0;
    char content = 0;
  };
  std::array<Place, 16> places;
};

bool is_filled(const c10::DataPtr& buffer, size_t bytes, char content) {
  const char* data = static_cast<const char*>(buffer.get());
  return data == nullptr || (data[0] == content && data[bytes / 2] == content && data[bytes - 1] == content);
}

TEST(RecyclerThreads, MayAllocateAndFreeAtOnce) {
  Recycler recycler({.smallest = kSmallest, .held = 16 * kSmallest, .patience = 50});
  Shelf shelf;
  std::atomic<int> wrong = 0;
  std::atomic<size_t> trimmed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRequests; ++i) {
        const size_t bytes = kSmallest + random() % (3 * kSmallest);
        const char content = static_cast<char>(random());
        c10::DataPtr buffer = recycler.allocate(bytes);
        std::memset(buffer.get(), content, bytes);
        Shelf::Place& place = shelf.places[random() % shelf.places.size()];
        {
          const std::lock_guard lock(place.mutex);
          if (!is_filled(place.buffer, place.bytes, place.content)) ++wrong;
          std::swap(place.buffer, buffer);
          place.bytes = bytes;
          place.content = content;
        }
        if (recycler.counts().held_bytes > 16 * kSmallest) ++wrong;
        if (i % 500 == 0) trimmed += recycler.trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Shelf::Place& place : shelf.places) {
    if (!is_filled(place.buffer, place.bytes, place.content)) ++wrong;
    place.buffer.clear();
  }
  EXPECT_EQ(wrong, 0);
  const RecyclerCounts counts = recycler.counts();
  EXPECT_EQ(counts.reused + counts.fresh, static_cast<uint64_t>(kThreads * kRequests));
  EXPECT_EQ(counts.fresh, counts.returned + counts.held_buffers);
  EXPECT_GT(counts.reused, 0U);
  EXPECT_EQ(recycler.trim(), counts.held_bytes);
}

TEST(RecyclerThreads, ShareTheFirstUseOfTheProcessesOne) {
  std::vector<std::thread> threads;
  std::array<Recycler*, kThreads> seen{};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&seen, t] {
      seen[t] = &Recycler::of_process();
      seen[t]->allocate(size_t{1} << 20);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Recycler* recycler : seen) EXPECT_EQ(recycler, seen[0]);
}

}  // namespace
}  // namespace hindcast::codegen::cpu
