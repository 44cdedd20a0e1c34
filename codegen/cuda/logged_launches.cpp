#include "codegen/cuda/logged_launches.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>

namespace hindcast::codegen::cuda {
namespace {

constexpr uint64_t kAlignment = 16;  // that an entry point may have been chosen for: its widest access

bool is_in(uint64_t address, const void* begin, int64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  return address >= first && address < first + static_cast<uint64_t>(bytes);
}

}  // namespace

void LoggedLaunches::add(const Launch& launch, void* node) {
  HC_CHECK(launch.argument_bytes % sizeof(uint64_t) == 0);
  Kept& kept = all_.emplace_back();
  kept.node = node;
  kept.argument.resize(launch.argument_bytes / sizeof(uint64_t));
  std::memcpy(kept.argument.data(), launch.argument, launch.argument_bytes);
  kept.is_movable = !launch.leads_outside;
  for (const uint16_t word : launch.pointers) {
    const uint64_t address = kept.argument[word];
    if (address == 0) continue;
    kept.pointers.push_back(word);
    kept.is_movable = kept.is_movable && std::any_of(launch.memory.begin(), launch.memory.end(),
                                                     [&](const Memory& memory) { return is_in(address, memory.begin, memory.bytes); });
  }
}

std::optional<bool> LoggedLaunches::move_pointers(Kept& kept, c10::ArrayRef<MovedMemory> moved) {
  if (!kept.is_movable) return std::nullopt;
  bool changed = false;
  for (const uint16_t word : kept.pointers) {
    uint64_t& address = kept.argument[word];
    const auto* const now =
        std::find_if(moved.begin(), moved.end(), [&](const MovedMemory& one) { return is_in(address, one.from, one.bytes); });
    if (now == moved.end()) continue;
    const uint64_t distance = reinterpret_cast<uintptr_t>(now->to) - reinterpret_cast<uintptr_t>(now->from);
    if (distance % kAlignment != 0) return std::nullopt;
    address += distance;
    changed = true;
  }
  return changed;
}

}  // namespace hindcast::codegen::cuda
