// The check of each load and store: part of Block.

#include "tests/cuda_emulator/runtime/block.h"

namespace hindcast::tests::cuda {
namespace {

std::string verb_of(AccessKind kind) {
  switch (kind) {
    case AccessKind::Read:
      return "reads ";
    case AccessKind::Write:
      return "writes ";
    case AccessKind::Atomic:
      return "updates ";
  }
  return "";
}

}  // namespace

Region* Block::shared_at(uint64_t address) {
  for (Region& array : shared_) {
    if (address >= array.begin && address < array.end) return &array;
  }
  return nullptr;
}

std::string Block::words(const Region& region, uint64_t bytes, AccessKind kind) const {
  return verb_of(kind) + std::to_string(bytes) + " bytes of '" + region.name + "', which has " + std::to_string(region.end - region.begin);
}

void Block::access(uint64_t address, uint64_t bytes, AccessKind kind) {
  if (threads_[now_.thread].fibre->owns(address)) return;
  if (binding_.shared_memory.holds(address)) {
    Region* array = shared_at(address);
    if (array == nullptr) fail(Wrong::SharedBounds, address, -1, verb_of(kind) + std::to_string(bytes) + " bytes; expected a shared array");
    return check(*array, true, address, bytes, kind);
  }
  Region* region = Memory::global().find(address);
  if (region != nullptr) return check(*region, false, address, bytes, kind);
  // Tables of constants.
  if (kind == AccessKind::Read && kernel_.module->image().holds(address)) return;
  fail(Wrong::GlobalBounds, address, -1, verb_of(kind) + std::to_string(bytes) + " bytes; " + Memory::global().near(address));
}

Traffic& Block::traffic() {
  static Traffic traffic;
  return traffic;
}

// Counts the first access of its kind in the launch.
void Block::count(const Cell& cell, AccessKind kind, uint64_t bytes) const {
  if (kind != AccessKind::Write && cell.reads.block() < now_.first_block) traffic().read += bytes;
  if (kind != AccessKind::Read && cell.writes.block() < now_.first_block) traffic().written += bytes;
}

void Block::check(Region& region, bool shared, uint64_t address, uint64_t bytes, AccessKind kind) {
  const uint64_t offset = address - region.begin;
  const int64_t element = offset / bytes;
  if (address + bytes > region.end) {
    fail(shared ? Wrong::SharedBounds : Wrong::GlobalBounds, address, element, words(region, bytes, kind));
  }
  if (const uint64_t first = region.shadow.of_part(offset); first < bytes) {  // of a struct, for example
    check(region, shared, address, first, kind);
    return check(region, shared, address + first, bytes - first, kind);
  }
  Moment now = now_;
  // A block's shared memory is its own: accesses of earlier blocks do not count.
  if (shared) now.first_block = now.block;
  const Shadow::Range cells = region.shadow.cells_of(offset, bytes);
  for (Cell* cell = cells.begin; cell != cells.end; ++cell) {
    const bool written = shared ? cell->writes.in_block(now) : cell->written_by_host || cell->writes.block() != 0;
    if (kind != AccessKind::Write && !written) fail(Wrong::Uninitialised, address, element, words(region, bytes, kind));
    if (!shared) count(*cell, kind, bytes / static_cast<uint64_t>(cells.end - cells.begin));
    const auto race = cell->race_with(now, kind);
    if (!race) {
      cell->add(now, kind);
      continue;
    }
    const bool between_blocks = race->other_block != now.block;
    std::string other = "thread " + std::to_string(race->other_thread);
    if (between_blocks) other += " of block " + std::to_string(race->other_block - now.first_block);
    fail(race->kind, address, element, words(region, bytes, kind) + "; nothing orders this after " + other, between_blocks);
  }
}

}  // namespace hindcast::tests::cuda
