#include "engine/cache/captures.h"

#include "base/fork.h"
#include "engine/compile/background.h"
#include "engine/compile/free_heap.h"

#include <algorithm>
#include <limits>

namespace hindcast::engine {

Captures& Captures::of_process() {
  static constinit base::MadeOnce<Captures> captures;  // never destroyed: a backward may still run on another thread while the process ends
  return captures.get();
}

std::vector<std::shared_ptr<Variant>> Captures::variants() const {
  std::vector<std::shared_ptr<Variant>> all;
  for (const auto& entry : entries_.entries()) {
    const auto variants = entry->variants();
    all.insert(all.end(), variants.begin(), variants.end());
  }
  return all;
}

Payoff::Room Captures::room(const Options& options) const {
  // Counts as full from 7/8 of the bytes on, the level that an eviction shrinks to.
  if (entries_.size() < options.cache_size && PlanSlot::footprint_of_all() < options.cache_bytes / 8 * 7) return {};
  Payoff::Room room{true, std::numeric_limits<uint64_t>::max()};
  for (const auto& variant : variants()) room.least_recent_use = std::min(room.least_recent_use, variant->last_use());
  return room;
}

bool Captures::keep(const cache::KeyView& key, const std::shared_ptr<Entry>& entry, std::shared_ptr<Variant> variant,
                    const Options& options) {
  if (variant->slot().footprint() > options.cache_bytes) return false;
  const auto inserted = entries_.find_or_insert(key, entry, options.cache_size);
  inserted.entry->add(variant);
  evicted_.fetch_add(inserted.evicted, std::memory_order_relaxed);
  // Entries made from unloaded code can never be found again.
  if (entry->unloads() != 0) entries_.erase_if([&](const Entry& other) { return other.is_older_than(entry->unloads()); });
  if (PlanSlot::footprint_of_all() > options.cache_bytes) shrink_to(options.cache_bytes / 8 * 7, *variant);
  return true;
}

void Captures::shrink_to(size_t bytes, const Variant& newest) {
  struct Candidate {
    std::shared_ptr<Entry> entry;
    std::shared_ptr<Variant> variant;
    uint64_t last_use;
  };
  std::vector<Candidate> candidates;
  for (const auto& entry : entries_.entries()) {
    for (auto& variant : entry->variants()) {
      if (variant.get() != &newest) candidates.push_back({entry, variant, variant->last_use()});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.last_use < b.last_use; });
  for (Candidate& candidate : candidates) {
    if (PlanSlot::footprint_of_all() <= bytes) break;
    if (candidate.entry->remove(*candidate.variant)) evicted_.fetch_add(1, std::memory_order_relaxed);
    candidate.variant = nullptr;
  }
  entries_.erase_if([](const Entry& entry) { return entry.empty(); });
  candidates.clear();
  run_in_background({.run = return_free_heap});
}

void Captures::forget() {
  entries_.clear();
  evicted_.store(0, std::memory_order_relaxed);
}

std::vector<std::shared_ptr<const capture::Graph>> captured_graphs() {
  std::vector<std::shared_ptr<const capture::Graph>> captured;
  for (const auto& variant : Captures::of_process().variants()) captured.push_back(variant->slot().graph());
  std::sort(captured.begin(), captured.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return captured;
}

void forget_graphs() {
  Captures::of_process().forget();
  Payoff::of_process().reset();
}

}  // namespace hindcast::engine
