#pragma once
// Keeps objects until the process ends, reachable for leak checkers: a thread may still point to them.

#include "base/fork.h"

#include <mutex>
#include <utility>
#include <vector>

namespace hindcast::base {

template <class Owner>
void never_free(Owner owner) {
  struct Kept {
    ForkSafe<std::mutex> mutex{ForkRank::Leaf};
    std::vector<Owner> owners;
  };
  static constinit MadeOnce<Kept> made;
  Kept& kept = made.get();
  const std::lock_guard lock(kept.mutex);
  kept.owners.push_back(std::move(owner));
}

}  // namespace hindcast::base
