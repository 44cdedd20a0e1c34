#pragma once
// What is known of each piece of memory: who wrote and who read it last, and when. Two accesses are ordered if they are of one thread, if
// a barrier of the block lies between them, if a barrier of their warp does, or if they are of two launches. What is not ordered is a race,
// in whatever order the emulator happens to run the threads.

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/cuda_emulator/runtime/finding.h"

namespace hindcast::tests::cuda {

enum class AccessKind { Read, Write, Atomic };

/// Where a launch has come to.
struct Moment {
  uint32_t first_block = 1;  // of this launch; blocks are counted over all launches
  uint32_t block = 1;
  uint32_t barriers = 0;       // that the block has passed
  uint32_t warp_barriers = 0;  // that the thread's warp has passed
  uint32_t thread = 0;
};

/// Accesses that are not ordered among themselves, as one. What they have in common is kept, so nothing needs clearing between launches.
class Accesses {
 public:
  /// Whether all of them come before `now`.
  bool all_before(const Moment& now) const;
  void add(const Moment& now, bool atomic);
  bool in_block(const Moment& now) const { return block_ == now.block; }
  bool all_atomic() const { return atomic_; }
  uint32_t block() const { return block_; }
  uint32_t thread() const { return thread_; }

 private:
  uint32_t block_ = 0, barriers_ = 0, warp_barriers_ = 0;  // of the last one
  uint32_t thread_ : 16 = 0;
  uint32_t many_threads_ : 1 = 0;
  uint32_t many_warps_ : 1 = 0;
  uint32_t many_blocks_ : 1 = 0;
  uint32_t atomic_ : 1 = 0;
};

struct Race {
  Wrong kind;
  uint32_t other_block, other_thread;
};

struct Cell {
  Accesses writes, reads;
  bool written_by_host = false;

  std::optional<Race> race_with(const Moment& now, AccessKind kind) const;
  void add(const Moment& now, AccessKind kind);
};

/// The cells of some memory: one for the smallest piece that was ever accessed, as one for each byte would be slow. They are made when they
/// are first asked for: a large tensor of which little is touched costs little.
class Shadow {
 public:
  /// `begin`: an address, by which an aligned access lies in one part.
  Shadow(uint64_t begin, uint64_t bytes, bool written)
      : skip_(begin % kAlignment), end_(skip_ + bytes), written_(written), parts_((end_ + kPart - 1) / kPart) {}

  /// Bytes behind the offset that lie in one part.
  uint64_t of_part(uint64_t offset) const { return kPart - (offset + skip_) % kPart; }
  /// The cells of an access, which lies within the memory and in one part.
  struct Range {
    Cell *begin, *end;
  };
  Range cells_of(uint64_t offset, uint64_t bytes);
  void set_written(bool written);

 private:
  static constexpr uint64_t kAlignment = 16, kPart = 4096;  // bytes

  void split(uint32_t piece);

  uint64_t skip_, end_;
  uint32_t piece_ = 4;
  bool written_;
  std::vector<std::vector<Cell>> parts_;
};

}  // namespace hindcast::tests::cuda
