#include "engine/cache/payoff.h"

#include "base/fork.h"
#include "engine/options/use_options.h"

#include <algorithm>
#include <span>

namespace hindcast::engine {

bool backs_off(const Options& options) { return options.back_off && !options.nan_guard && may_back_off(); }

cache::KeyHash structure_of_rest(const cache::KeyHash& structure, Start start, const capture::Facts& resumed) {
  const auto bytes = std::as_bytes(std::span(resumed));
  cache::KeyHash rest = cache::hash_of({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  rest.low ^= structure.low + start.call * 8 + static_cast<uint64_t>(start.stage);
  return rest;
}

Payoff& Payoff::of_process() {
  static constinit base::MadeOnce<Payoff> payoff;
  return payoff.get();
}

Payoff::Sighting& Payoff::sighting_of(const cache::KeyHash& structure) {
  auto& places = sightings_[structure.low % sightings_.size()];
  const auto found = std::ranges::find(places, structure.high, &Sighting::structure);
  return found != places.end() ? *found : *std::ranges::min_element(places, {}, &Sighting::latest);
}

Payoff::Sighting Payoff::sight(const cache::KeyHash& structure, uint64_t now) {
  const std::lock_guard lock(mutex_);
  Sighting& sighting = sighting_of(structure);
  if (sighting.structure != structure.high || sighting.count == 0) sighting = {structure.high, now, now};
  const Sighting before = sighting;
  ++sighting.count;
  sighting.latest = now;
  return before;
}

void Payoff::too_large(const cache::KeyHash& structure) {
  const std::lock_guard lock(mutex_);
  Sighting& sighting = sighting_of(structure);
  sighting = {structure.high, 0, sighting.latest, 1, 0, true};
}

void Payoff::traced(const cache::KeyHash& structure, bool raised) {
  const std::lock_guard lock(mutex_);
  Sighting& sighting = sighting_of(structure);
  if (sighting.structure != structure.high) return;
  sighting.raised = raised ? sighting.raised + 1 : 0;
  if (sighting.raised >= kMostRaised) sighting.is_never_kept = true;
}

void Payoff::earn(int64_t amount) {
  int64_t credit = credit_.load(std::memory_order_relaxed);
  while (credit < kCredit && !credit_.compare_exchange_weak(credit, std::min(credit + amount, kCredit), std::memory_order_relaxed)) {
  }
}

void Payoff::reset() {
  resets_.fetch_add(1, std::memory_order_relaxed);
  credit_.store(kCredit, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  sightings_.fill({});
}

Pause& Pause::of_thread() {
  static thread_local Pause pause;
  return pause;
}

}  // namespace hindcast::engine
