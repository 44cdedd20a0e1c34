#pragma once
// A caching allocator for large CPU results.
//
// Most of a large result's cost is not its arithmetic: the system maps a fresh buffer page by page, as each page is first
// written, and unmaps it when it is freed. (glibc does so with every buffer of 32 MiB and more, and with smaller ones when
// enough of them are free.) Each training step allocates buffers of the same sizes as the last step. So:
//
//   allocate   the smallest free buffer that is large enough and at most a quarter larger; of equals the one freed last,
//              whose pages are most likely cached; otherwise a fresh one from LibTorch's CPU allocator
//   free       when the last owner is gone (a slice, a Storage, a detach()), on any thread: the storage's deleter is ours,
//              and keeps the buffer as free
//
// Free buffers are unavailable to the rest of the process, so three bounds apply. The oldest are returned to LibTorch's
// allocator until
//   - all free buffers together are at most Limits::held,
//   - free and used buffers together are at most twice the peak of requested bytes: sizes that halve from layer to layer
//     add up to that, and a program whose sizes change all the time does not collect buffers of every size,
//   - no buffer has been unused for Limits::patience other requests.
// A program that has stopped training makes no more requests: the rest is freed by trim(), or when memory runs out.
//
// A profiler, or a custom allocator behind c10::GetCPUAllocator(), sees fresh and returned buffers, each 64 bytes larger than
// requested, and sees free ones as allocated. LibTorch's debugging flags that fill fresh memory do not fill recycled memory.
// AddressSanitizer reports accesses to a free buffer.

#include "base/fork.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace hindcast::codegen::cpu {

/// Counts of buffers that are large enough to be recycled; requests passed through to LibTorch's allocator are not counted.
struct RecyclerCounts {
  uint64_t reused = 0;        // requests served by a free buffer
  uint64_t fresh = 0;         // requests served by LibTorch's allocator
  uint64_t returned = 0;      // buffers returned to LibTorch's allocator
  uint64_t held_bytes = 0;    // in free buffers, now
  uint64_t held_buffers = 0;  // now
};

class Recycler final : public c10::Allocator {
 public:
  struct Limits {
    /// Bytes. Smaller requests pass through: LibTorch's allocator mostly has mapped memory for them. (With 1 MiB, the free buffers would be
    /// visible in the peak memory of a step with small tensors.) The smallest are cached per thread (small_blocks.h).
    size_t smallest = size_t{4} << 20;
    /// Bytes in free buffers. Larger requests pass through.
    size_t held = default_held();
    /// A free buffer is returned after this many requests that did not use it: more than a training step makes.
    uint64_t patience = 4096;
  };
  /// 256 MiB, or a sixteenth of the machine's memory if that is less.
  static size_t default_held();

  /// The process's recycler; it is never destroyed, since tensors may outlive static objects. A fork waits until no thread is
  /// inside it. The child inherits the counts and the free buffers, copy-on-write.
  static Recycler& of_process();

  explicit Recycler(Limits limits);
  /// No buffer may be in use.
  ~Recycler() override;
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;

  /// Throws what LibTorch's allocator throws, if it fails again after all free buffers have been returned to it.
  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  /// Returns every free buffer to LibTorch's allocator, and resets the peak of requested bytes. Returns the number of bytes freed.
  size_t trim();

  RecyclerCounts counts() const;
  /// Zeroes `reused`, `fresh` and `returned`.
  void reset_counts();

 private:
  struct Buffer;
  struct Free {
    size_t bytes;
    uint64_t since;  // the number of requests when it was freed
    Buffer* buffer;
  };

  Buffer* take(size_t bytes);
  std::vector<Free>::iterator find(size_t bytes);
  Buffer* make(size_t bytes);
  void keep(Buffer* buffer);
  Buffer* drop_to(size_t room);
  size_t room() const { return std::min(limits_.held, 2 * most_asked_ - used_); }
  c10::DataPtr pass_through(size_t bytes);
  static void give_back(void* data);
  static void release(Buffer* dropped);

  const Limits limits_;
  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Memory};
  std::vector<Free> free_;  // oldest first; its largest capacity is reserved at the start, since deleters must not throw
  uint64_t requests_ = 0;
  size_t asked_ = 0;       // bytes requested for buffers in use
  size_t most_asked_ = 0;  // the peak of asked_
  size_t used_ = 0;        // bytes of buffers in use: at most a quarter more than asked_
  RecyclerCounts counts_;
};

}  // namespace hindcast::codegen::cpu
