#include "engine/aot/program_pairs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hindcast::engine {

ProgramPairs::Pair ProgramPairs::next() const {
  const std::lock_guard lock(mutex_);
  return pairs_.empty() ? nullptr : pairs_.front();
}

std::vector<ProgramPairs::Pair> ProgramPairs::all() const {
  const std::lock_guard lock(mutex_);
  return pairs_;
}

ProgramPairs::Pair ProgramPairs::whole() const {
  for (const Pair& each : all()) {
    if (each->whole == nullptr) return each;
  }
  return nullptr;
}

ProgramPairs::Pair ProgramPairs::for_gradients(const std::vector<capture::Facts>& tangents, const std::vector<bool>& wants,
                                               const ProgramPair& forward) const {
  const std::lock_guard lock(mutex_);
  for (const Pair& each : pairs_) {
    if (each->backward && each->forward == forward.forward && each->tangents == tangents && each->wants == wants) return each;
  }
  return nullptr;
}

bool ProgramPairs::has_room_for_some_primals() const {
  constexpr std::ptrdiff_t kMostOfSome = 3;
  const std::lock_guard lock(mutex_);
  return std::count_if(pairs_.begin(), pairs_.end(), [](const Pair& each) { return !each->wants.empty(); }) < kMostOfSome;
}

void ProgramPairs::add(std::vector<Pair> made) {
  constexpr size_t kMost = 8;
  std::vector<Pair> oldest;  // destroyed after the lock is released, since that may free kernels
  const std::lock_guard lock(mutex_);
  if (!pairs_.empty() && pairs_.front()->forward != made.front()->forward) return;  // their forward has been replaced meanwhile
  pairs_.insert(pairs_.begin(), std::make_move_iterator(made.rbegin()), std::make_move_iterator(made.rend()));
  while (pairs_.size() > kMost) {
    const auto last = pairs_.end() - (pairs_.back()->whole == nullptr ? 2 : 1);
    oldest.push_back(std::move(*last));
    pairs_.erase(last);
  }
}

void ProgramPairs::add_beside(Pair made) {
  const std::lock_guard lock(mutex_);
  if (pairs_.empty() || pairs_.front()->forward != made->forward) return;  // their forward has been replaced meanwhile
  pairs_.insert(pairs_.begin() + 1, std::move(made));
}

void ProgramPairs::note_miss(const Pair& pair) {
  const std::lock_guard lock(mutex_);
  const bool again = missed_.lock() == pair;
  missed_ = pair;
  const auto place = std::find(pairs_.begin(), pairs_.end(), pair);
  if (again && place != pairs_.end()) std::rotate(pairs_.begin(), place, place + 1);
}

void ProgramPairs::replace(const ProgramPair& former, Pair pair) {
  std::vector<Pair> all = {std::move(pair)};  // the old ones are destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (!pairs_.empty() && pairs_.front()->forward == former.forward) pairs_.swap(all);
}

}  // namespace hindcast::engine
