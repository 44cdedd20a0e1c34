#include "codegen/cpu/memory/small_blocks.h"

#include "codegen/cpu/memory/poison.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>

namespace hindcast::codegen::cpu::small_blocks {
namespace {

// The header of a block, directly before its data, as in the recycler.
struct alignas(c10::gAlignment) Block {
  c10::DataPtr memory;  // LibTorch's, this header included
  size_t bytes;         // of the data

  char* data() { return reinterpret_cast<char*>(this + 1); }
};
static_assert(sizeof(Block) == c10::gAlignment);

void release(Block* block) {
  ASAN_UNPOISON_MEMORY_REGION(block->data(), block->bytes);
  const c10::DataPtr memory = std::move(block->memory);  // contains the header itself
  std::destroy_at(block);
}

class FreeBlocks {
 public:
  FreeBlocks() { of_thread() = this; }
  ~FreeBlocks() {
    of_thread() = nullptr;  // tensors that are destroyed later return their memory to LibTorch's allocator
    trim();
  }
  FreeBlocks(const FreeBlocks&) = delete;
  FreeBlocks& operator=(const FreeBlocks&) = delete;

  /// nullptr if the thread's variables have been destroyed already.
  static FreeBlocks* get() {
    static thread_local FreeBlocks made;
    return of_thread();
  }

  Block* take(size_t bytes) {
    for (size_t i = count_; i-- > 0;) {
      if (blocks_[i]->bytes != bytes) continue;
      Block* const taken = blocks_[i];
      remove(i, i + 1);
      return taken;
    }
    return nullptr;
  }

  void keep(Block* block) {
    size_t oldest = 0;
    for (size_t bytes = bytes_ + block->bytes; oldest < count_ && (bytes > kMostBytes || count_ - oldest == kMost); ++oldest)
      bytes -= blocks_[oldest]->bytes;
    std::array<Block*, kMost> dropped;
    const auto end = std::copy_n(blocks_.begin(), oldest, dropped.begin());
    remove(0, oldest);
    blocks_[count_++] = block;
    bytes_ += block->bytes;
    std::for_each(dropped.begin(), end, release);
  }

  size_t trim() {
    const size_t bytes = bytes_;
    std::array<Block*, kMost> dropped;
    const auto end = std::copy_n(blocks_.begin(), count_, dropped.begin());
    remove(0, count_);
    std::for_each(dropped.begin(), end, release);
    return bytes;
  }

  size_t bytes() const { return bytes_; }

 private:
  static FreeBlocks*& of_thread() {
    static thread_local FreeBlocks* blocks = nullptr;
    return blocks;
  }

  void remove(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) bytes_ -= blocks_[i]->bytes;
    std::copy(blocks_.begin() + end, blocks_.begin() + count_, blocks_.begin() + first);
    count_ -= end - first;
  }

  std::array<Block*, kMost> blocks_;  // oldest first
  size_t count_ = 0, bytes_ = 0;
};

void give_back(void* data) {
  Block* const block = static_cast<Block*>(data) - 1;
  FreeBlocks* const blocks = FreeBlocks::get();
  if (blocks == nullptr) return release(block);
  ASAN_POISON_MEMORY_REGION(block->data(), block->bytes);
  blocks->keep(block);
}

}  // namespace

c10::DataPtr allocate(size_t bytes) {
  FreeBlocks* const blocks = FreeBlocks::get();
  Block* block = blocks == nullptr ? nullptr : blocks->take(bytes);
  if (block == nullptr) {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(sizeof(Block) + bytes);
    block = new (memory.get()) Block{{}, bytes};
    block->memory = std::move(memory);
  }
  ASAN_UNPOISON_MEMORY_REGION(block->data(), bytes);
  return {block->data(), block->data(), &give_back, c10::Device(c10::DeviceType::CPU)};
}

size_t trim() {
  FreeBlocks* const blocks = FreeBlocks::get();
  return blocks == nullptr ? 0 : blocks->trim();
}

size_t held_bytes() {
  const FreeBlocks* const blocks = FreeBlocks::get();
  return blocks == nullptr ? 0 : blocks->bytes();
}

}  // namespace hindcast::codegen::cpu::small_blocks
