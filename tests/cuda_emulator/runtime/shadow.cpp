#include "tests/cuda_emulator/runtime/shadow.h"

#include <algorithm>

namespace hindcast::tests::cuda {

constexpr uint32_t kWarp = 32;

bool Accesses::all_before(const Moment& now) const {
  if (block_ < now.first_block) return true;
  if (many_blocks_ || block_ != now.block) return false;
  if (barriers_ < now.barriers) return true;
  if (many_warps_) return false;
  if (!many_threads_ && thread_ == now.thread) return true;
  return thread_ / kWarp == now.thread / kWarp && warp_barriers_ < now.warp_barriers;
}

void Accesses::add(const Moment& now, bool atomic) {
  if (block_ < now.first_block) {
    *this = {};
    atomic_ = atomic;
  } else if (block_ != now.block) {
    many_blocks_ = 1;
    many_threads_ = many_warps_ = 0;
    atomic_ = atomic_ && atomic;
  } else if (barriers_ < now.barriers) {
    many_threads_ = many_warps_ = 0;
    atomic_ = atomic && (!many_blocks_ || atomic_);
  } else {
    if (thread_ != now.thread) many_threads_ = 1;
    if (thread_ / kWarp != now.thread / kWarp) many_warps_ = 1;
    atomic_ = atomic_ && atomic;
  }
  block_ = now.block;
  barriers_ = now.barriers;
  warp_barriers_ = now.warp_barriers;
  thread_ = now.thread & 0xffff;
}

std::optional<Race> Cell::race_with(const Moment& now, AccessKind kind) const {
  const bool both_atomic = kind == AccessKind::Atomic && writes.all_atomic();
  if (!both_atomic && !writes.all_before(now)) {
    return Race{kind == AccessKind::Read ? Wrong::ReadAfterWrite : Wrong::WriteAfterWrite, writes.block(), writes.thread()};
  }
  if (kind != AccessKind::Read && !reads.all_before(now)) return Race{Wrong::WriteAfterRead, reads.block(), reads.thread()};
  return std::nullopt;
}

void Cell::add(const Moment& now, AccessKind kind) {
  if (kind == AccessKind::Read) {
    reads.add(now, false);
  } else {
    writes.add(now, kind == AccessKind::Atomic);
  }
}

Shadow::Range Shadow::cells_of(uint64_t offset, uint64_t bytes) {
  const uint64_t begin = offset + skip_, end = begin + bytes;
  while (begin % piece_ != 0 || (bytes % piece_ != 0 && end != end_)) split(piece_ / 2);
  std::vector<Cell>& part = parts_[begin / kPart];
  if (part.empty()) {
    part.resize(kPart / piece_);
    for (Cell& cell : part) cell.written_by_host = written_;
  }
  const uint64_t first = begin % kPart;
  return {part.data() + first / piece_, part.data() + std::min(first + bytes + piece_ - 1, kPart) / piece_};
}

void Shadow::set_written(bool written) {
  written_ = written;
  for (std::vector<Cell>& part : parts_) {
    for (Cell& cell : part) cell.written_by_host = written;
  }
}

void Shadow::split(uint32_t piece) {
  const uint32_t times = piece_ / piece;
  for (std::vector<Cell>& part : parts_) {
    std::vector<Cell> cells(part.size() * times);
    for (size_t i = 0; i < cells.size(); ++i) cells[i] = part[i / times];
    part = std::move(cells);
  }
  piece_ = piece;
}

}  // namespace hindcast::tests::cuda
