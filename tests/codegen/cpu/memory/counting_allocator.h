#pragma once
// While it lives, counts what is taken from LibTorch's CPU allocator, as a profiler or the benchmarks' allocator would see it.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

namespace hindcast::codegen::cpu {

/// One at a time. Memory allocated through it may be freed after its end.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : former_(c10::GetCPUAllocator()) {
    live() = 0;
    most() = 0;
    c10::SetCPUAllocator(this, kPriority);
  }
  ~CountingAllocator() override { c10::SetCPUAllocator(former_, kPriority); }

  static std::atomic<int64_t>& live() {
    static std::atomic<int64_t> bytes = 0;
    return bytes;
  }
  static std::atomic<int64_t>& most() {
    static std::atomic<int64_t> bytes = 0;
    return bytes;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > limit) throw std::bad_alloc();
    auto* block = static_cast<char*>(c10::alloc_cpu(kHeader + bytes));
    std::memcpy(block, &bytes, sizeof(bytes));
    live() += static_cast<int64_t>(bytes);
    most() = std::max<int64_t>(most(), live());
    return {block + kHeader, block + kHeader, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  /// Larger requests fail, as if memory were exhausted.
  size_t limit = SIZE_MAX;

 private:
  static constexpr size_t kHeader = c10::gAlignment;
  static constexpr uint8_t kPriority = 200;

  static void give_back(void* data) {
    if (data == nullptr) return;
    char* block = static_cast<char*>(data) - kHeader;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof(bytes));
    live() -= static_cast<int64_t>(bytes);
    c10::free_cpu(block);
  }

  c10::Allocator* former_;
};

}  // namespace hindcast::codegen::cpu
