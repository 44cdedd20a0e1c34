#include "bench/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <new>

namespace hindcast::bench {
namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

// As large as LibTorch's alignment, so that the data behind the header stays aligned.
struct alignas(c10::gAlignment) Header {
  int64_t bytes;
};

void free_counted(void* data) {
  if (data == nullptr) return;
  Header* header = static_cast<Header*>(data) - 1;
  live.fetch_sub(header->bytes, std::memory_order_relaxed);
  c10::free_cpu(header);
}

void* allocate_counted(size_t bytes) {
  if (bytes == 0) return nullptr;  // as LibTorch's own CPU allocator
  void* block = c10::alloc_cpu(sizeof(Header) + bytes);
  Header* header = new (block) Header{static_cast<int64_t>(bytes)};
  const int64_t now = live.fetch_add(header->bytes, std::memory_order_relaxed) + header->bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
  return header + 1;
}

struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = allocate_counted(bytes);
    return {data, data, &free_counted, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

void keep_freed_pages() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

int64_t live_bytes() { return live.load(std::memory_order_relaxed); }
int64_t peak_bytes() { return peak.load(std::memory_order_relaxed); }
void restart_peak() { peak.store(live_bytes(), std::memory_order_relaxed); }

int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

int64_t resident_bytes() {
  int64_t mapped = 0, resident = 0, of_files = 0;  // in pages
  std::ifstream("/proc/self/statm") >> mapped >> resident >> of_files;
  return (resident - of_files) * ::sysconf(_SC_PAGESIZE);
}

void return_freed_pages() { malloc_trim(0); }

}  // namespace hindcast::bench
