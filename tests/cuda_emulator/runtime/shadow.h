#pragma once
// What is known of each piece of memory: who wrote and who read it last, and when. Two accesses are ordered if they are of one thread, if a
// barrier of the block or of their warp lies between them, or if they are of two launches. Unordered accesses are a race, whatever order
// the emulator runs the threads in.

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/cuda_emulator/runtime/finding.h"

namespace hindcast::tests::cuda {

enum class AccessKind { Read, Write, Atomic };

/// The progress of a launch.
struct Moment {
  uint32_t first_block = 1;  // of this launch; blocks are counted over all launches
  uint32_t block = 1;
  uint32_t barriers = 0;       // passed by the block
  uint32_t warp_barriers = 0;  // passed by the thread's warp
  uint32_t thread = 0;
};

/// Accesses that are unordered among themselves, as one. It keeps what they have in common, so nothing needs clearing between launches.
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

/// The cells of some memory: one per smallest piece that was ever accessed, as one per byte would be slow. They are created on first use: a
/// large tensor of which little is accessed costs little.
class Shadow {
 public:
  /// `begin`: the address, so that an aligned access lies in one part.
  Shadow(uint64_t begin, uint64_t bytes, bool written)
      : skip_(begin % kAlignment), end_(skip_ + bytes), written_(written), parts_((end_ + kPart - 1) / kPart) {}

  /// Bytes after the offset that are in the same part.
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
