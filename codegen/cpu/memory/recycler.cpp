#include "codegen/cpu/memory/recycler.h"

#include "base/fork.h"
#include "codegen/cpu/memory/poison.h"
#include "codegen/cpu/memory/small_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace hindcast::codegen::cpu {

// The header of a buffer, directly before its data. Its size keeps the data aligned as LibTorch's allocator does. The data's address alone
// is the DataPtr's context: LibTorch supports copy-on-write only for such storages.
struct Recycler::Buffer {
  c10::DataPtr memory;  // LibTorch's, this header included
  Recycler* owner;
  size_t bytes;  // of the data
  size_t asked;  // bytes requested by the current user
  Buffer* next;  // next in a chain of buffers to be released

  char* data() { return reinterpret_cast<char*>(this + 1); }
};

namespace {

constexpr size_t kHeader = c10::gAlignment;

size_t largest_for(size_t bytes) { return bytes + bytes / 4; }

}  // namespace

size_t Recycler::default_held() {
  const auto memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::min(size_t{256} << 20, memory / 16);
}

Recycler& Recycler::of_process() {
  static constinit base::MadeOnce<Recycler> recycler;
  return recycler.by([] { return Recycler(Limits{}); });
}

Recycler::Recycler(Limits limits) : limits_(limits) {
  static_assert(sizeof(Buffer) == kHeader);
  free_.reserve(limits_.held / limits_.smallest + 1);
}

Recycler::~Recycler() { trim(); }

c10::DataPtr Recycler::allocate(size_t bytes) {
  if (bytes < limits_.smallest && bytes != 0 && bytes <= small_blocks::kLargest) return small_blocks::allocate(bytes);
  if (bytes < limits_.smallest || bytes > limits_.held) return pass_through(bytes);
  Buffer* buffer = take(bytes);
  if (buffer == nullptr) buffer = make(bytes);
  return {buffer->data(), buffer->data(), &give_back, c10::Device(c10::DeviceType::CPU)};
}

// Returns a free buffer, or nullptr. In both cases the request is counted, and free buffers are dropped to make room for it.
Recycler::Buffer* Recycler::take(size_t bytes) {
  Buffer* taken = nullptr;
  Buffer* dropped = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ++requests_;
    asked_ += bytes;
    most_asked_ = std::max(most_asked_, asked_);
    if (const auto best = find(bytes); best != free_.end()) {
      taken = best->buffer;
      taken->asked = bytes;
      counts_.held_bytes -= best->bytes;
      used_ += best->bytes;
      ++counts_.reused;
      free_.erase(best);
    } else {
      used_ += bytes;
    }
    dropped = drop_to(room());
  }
  release(dropped);
  if (taken != nullptr) ASAN_UNPOISON_MEMORY_REGION(taken->data(), bytes);
  return taken;
}

std::vector<Recycler::Free>::iterator Recycler::find(size_t bytes) {
  auto best = free_.end();
  for (auto free = free_.end(); free != free_.begin();) {  // newest first
    --free;
    if (free->bytes < bytes || free->bytes > largest_for(bytes)) continue;
    if (best == free_.end() || free->bytes < best->bytes) best = free;
  }
  return best;
}

Recycler::Buffer* Recycler::make(size_t bytes) {
  try {
    c10::DataPtr memory = pass_through(kHeader + bytes);
    auto* buffer = new (memory.get()) Buffer{{}, this, bytes, bytes, nullptr};
    buffer->memory = std::move(memory);
    const std::lock_guard lock(mutex_);
    ++counts_.fresh;
    return buffer;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    asked_ -= bytes;
    used_ -= bytes;
    throw;
  }
}

c10::DataPtr Recycler::pass_through(size_t bytes) {
  try {
    return c10::GetCPUAllocator()->allocate(bytes);
  } catch (...) {
    if (trim() == 0) throw;
  }
  return c10::GetCPUAllocator()->allocate(bytes);
}

void Recycler::give_back(void* data) {
  auto* buffer = static_cast<Buffer*>(data) - 1;
  buffer->owner->keep(buffer);
}

void Recycler::keep(Buffer* buffer) {
  ASAN_POISON_MEMORY_REGION(buffer->data(), buffer->bytes);
  Buffer* dropped = nullptr;
  {
    const std::lock_guard lock(mutex_);
    asked_ -= buffer->asked;
    used_ -= buffer->bytes;
    counts_.held_bytes += buffer->bytes;
    free_.push_back({buffer->bytes, requests_, buffer});
    dropped = drop_to(room());
  }
  release(dropped);
}

// Removes the oldest buffers until the others fit into `room` bytes and are not too old. Returns the removed ones as a chain for
// release(), which is called without the lock: unmapping is slow, and the underlying allocator may be a custom one.
Recycler::Buffer* Recycler::drop_to(size_t room) {
  Buffer* dropped = nullptr;
  auto free = free_.begin();
  for (; free != free_.end() && (counts_.held_bytes > room || requests_ - free->since > limits_.patience); ++free) {
    counts_.held_bytes -= free->bytes;
    ++counts_.returned;
    free->buffer->next = std::exchange(dropped, free->buffer);
  }
  free_.erase(free_.begin(), free);
  return dropped;
}

void Recycler::release(Buffer* dropped) {
  while (dropped != nullptr) {
    Buffer* buffer = std::exchange(dropped, dropped->next);
    ASAN_UNPOISON_MEMORY_REGION(buffer->data(), buffer->bytes);
    const c10::DataPtr memory = std::move(buffer->memory);  // contains the header itself
    std::destroy_at(buffer);
  }
}

size_t Recycler::trim() {
  Buffer* dropped = nullptr;
  size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    bytes = counts_.held_bytes;
    dropped = drop_to(0);
    most_asked_ = asked_;
  }
  release(dropped);
  return bytes;
}

RecyclerCounts Recycler::counts() const {
  const std::lock_guard lock(mutex_);
  RecyclerCounts counts = counts_;
  counts.held_buffers = free_.size();
  return counts;
}

void Recycler::reset_counts() {
  const std::lock_guard lock(mutex_);
  counts_.reused = counts_.fresh = counts_.returned = 0;
}

}  // namespace hindcast::codegen::cpu
