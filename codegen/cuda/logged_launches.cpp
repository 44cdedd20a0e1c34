#include "codegen/cuda/logged_launches.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hindcast::codegen::cuda {
namespace {

thread_local LoggedLaunches* replaced = nullptr;

constexpr uint64_t kAlignment = 16;  // of the widest access, on which the choice of the entry point may depend

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
  kept.is_of_sets = launch.is_of_sets;
  kept.function = launch.function;
  kept.grid = launch.grid;
  for (const uint16_t word : launch.pointers) {
    const uint64_t address = kept.argument[word];
    if (address == 0) continue;
    kept.pointers.push_back(word);
    kept.is_movable = kept.is_movable && std::any_of(launch.memory.begin(), launch.memory.end(),
                                                     [&](const Memory& memory) { return is_in(address, memory.begin, memory.bytes); });
  }
}

LoggedLaunches* LoggedLaunches::replaced_now() { return replaced; }

bool LoggedLaunches::gather_replacements(c10::function_ref<void()> give) {
  struct Now {
    explicit Now(LoggedLaunches* launches) : former(std::exchange(replaced, launches)) {}
    ~Now() { replaced = former; }
    LoggedLaunches* const former;
  } const now(this);
  replacements_.clear();
  next_ = 0;
  fits_ = true;
  give();
  return fits_ &&
         std::none_of(all_.begin() + static_cast<std::ptrdiff_t>(next_), all_.end(), [](const Kept& kept) { return kept.is_of_sets; });
}

void LoggedLaunches::replace_next(const Launch& launch) {
  while (next_ < all_.size() && !all_[next_].is_of_sets) ++next_;
  if (next_ == all_.size()) return void(fits_ = false);
  const Kept& kept = all_[next_++];
  if (kept.function != launch.function || kept.grid != launch.grid || kept.argument.size() * sizeof(uint64_t) != launch.argument_bytes)
    return void(fits_ = false);
  const auto* const words = static_cast<const uint64_t*>(launch.argument);
  replacements_.emplace_back(words, words + kept.argument.size());
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
