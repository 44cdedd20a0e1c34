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
  for (const uint16_t word : launch.pointers) {
    const uint64_t address = kept.argument[word];
    if (address == 0) continue;
    const bool is_in_tensor = std::any_of(launch.memory.begin(), launch.memory.end(),
                                          [&](const Memory& memory) { return is_in(address, memory.begin, memory.bytes); });
    kept.pointers.push_back({word, is_in_tensor});
  }
}

std::optional<bool> LoggedLaunches::move_pointers(Kept& kept, c10::ArrayRef<MovedMemory> moved) {
  bool changed = false;
  for (const auto& [word, is_in_tensor] : kept.pointers) {
    uint64_t& address = kept.argument[word];
    const auto* const now =
        std::find_if(moved.begin(), moved.end(), [&](const MovedMemory& one) { return is_in(address, one.from, one.bytes); });
    if (!is_in_tensor) return std::nullopt;
    if (now == moved.end()) continue;
    const uint64_t distance = reinterpret_cast<uintptr_t>(now->to) - reinterpret_cast<uintptr_t>(now->from);
    if (distance % kAlignment != 0) return std::nullopt;
    address += distance;
    changed = true;
  }
  return changed;
}

}  // namespace hindcast::codegen::cuda
