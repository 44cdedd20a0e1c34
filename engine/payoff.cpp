#include "engine/payoff.h"

#include <algorithm>

namespace hindcast::engine {

Payoff& Payoff::of_process() {
  static auto* payoff = new Payoff;
  return *payoff;
}

Payoff::Sighting Payoff::sight(const cache::KeyHash& structure, uint64_t now) {
  const std::lock_guard lock(mutex_);
  Sighting& sighting = sighting_of(structure);
  if (sighting.structure != structure.high || sighting.count == 0) sighting = {structure.high, now};
  const Sighting before = sighting;
  ++sighting.count;
  return before;
}

void Payoff::too_large(const cache::KeyHash& structure) {
  const std::lock_guard lock(mutex_);
  sighting_of(structure) = {structure.high, 0, 1, true};
}

void Payoff::earn() {
  int64_t credit = credit_.load(std::memory_order_relaxed);
  while (credit < kCredit && !credit_.compare_exchange_weak(credit, credit + 1, std::memory_order_relaxed)) {
  }
}

void Payoff::reset() {
  credit_.store(kCredit, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  sightings_.fill({});
}

Pause& Pause::of_thread() {
  static thread_local Pause pause;
  return pause;
}

}  // namespace hindcast::engine
