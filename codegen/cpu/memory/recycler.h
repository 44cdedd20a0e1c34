#pragma once
// Memory for large results that is mapped already.
//
// Most of a large result's cost is not its arithmetic: the system maps a fresh buffer page by page, as each is first
// written, and unmaps it when it is freed. (glibc does so with every buffer of 32 MiB and more, and with smaller ones when
// enough of them are free.) A step of training makes buffers as large as the last step's. So:
//
//   request           the smallest free buffer that is large enough and at most a quarter larger, of equals the one freed
//                     last, whose pages are likeliest in the cache; else a fresh one of LibTorch's CPU allocator
//   last holder gone  whoever it was (a slice, a Storage, a detach()), on whatever thread: the storage's deleter is ours,
//                     and the buffer is free
//
// Free buffers are memory that nobody else has, so they are bounded three times. The oldest are returned to LibTorch's
// allocator until
//   - free ones together are at most Limits::held,
//   - free ones and those in use are at most twice the most that was ever asked for at once: sizes that halve from layer to
//     layer add up to that, and a trainer whose sizes change all the time does not gather buffers of every size,
//   - none has been left lying while Limits::patience other requests passed.
// A trainer that has stopped makes no more requests: what is left goes by trim(), or when memory runs out.
//
// A profiler, or an allocator that somebody has put behind c10::GetCPUAllocator(), sees fresh and returned buffers, each 64
// bytes larger than asked for, and sees free ones as allocated. LibTorch's debugging flags that fill fresh memory do not fill
// recycled memory. AddressSanitizer reports whoever touches a free buffer.

#include "base/fork.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace hindcast::codegen::cpu {

/// Of buffers that are large enough to be recycled; what passes through to LibTorch's allocator is not counted.
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
    /// Bytes. Smaller requests pass through: for them LibTorch's allocator mostly has mapped memory. (At 1 MiB, what is kept free would
    /// show in the peak of a step of small tensors.) The smallest are each thread's own (small_blocks.h).
    size_t smallest = size_t{4} << 20;
    /// Bytes in free buffers. Larger requests pass through.
    size_t held = default_held();
    /// How many requests for others a free buffer waits for one: more than one step makes.
    uint64_t patience = 4096;
  };
  /// 256 MiB, or a sixteenth of the machine's memory if that is less.
  static size_t default_held();

  /// The one of this process; it is never destroyed, since tensors may outlive static objects. A fork waits until no thread is
  /// inside of it. The child has the counts and the free buffers, copied by the system as they are written to.
  static Recycler& of_process();

  explicit Recycler(Limits limits);
  /// No buffer may be in use any more.
  ~Recycler() override;
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;

  /// Throws what LibTorch's allocator throws, if that also fails after everything free has been returned to it.
  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  /// Returns every free buffer to LibTorch's allocator, and forgets what was once asked for. Bytes returned.
  size_t trim();

  RecyclerCounts counts() const;
  /// Zeroes `reused`, `fresh` and `returned`.
  void reset_counts();

 private:
  struct Buffer;
  struct Free {
    size_t bytes;
    uint64_t since;  // the number of the request before
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
  std::vector<Free> free_;  // the oldest first; as long as it can get from the start, since deleters must not throw
  uint64_t requests_ = 0;
  size_t asked_ = 0;       // bytes asked for by those in use
  size_t most_asked_ = 0;  // the most that this was
  size_t used_ = 0;        // bytes of those in use: at most a quarter more than asked
  RecyclerCounts counts_;
};

}  // namespace hindcast::codegen::cpu
