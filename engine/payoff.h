#pragma once
// Whether captures pay.
//
// A capture costs three to four backwards of the stock engine, and each hit gives back some of one. A program whose every
// backward has another structure, or more structures in turn than are kept, would pay for ever and get nothing. So
//
//   - captures are made on credit: each takes four from it, and gives back one by each of its first eight hits. Without credit
//     a structure is captured when it is seen for the second time. A large backward counts as several, up to eight: a capture costs time
//     and memory by its nodes. So a program of packed sequences, where each set of lengths is a structure, makes few in vain;
//   - once the captures fill their bounds, a structure must have come back sixteen times while the one that would have to go
//     was not used at all. Of 257 structures in turn 256 stay, and the one that has no room is left to the stock engine;
//   - after some calls in a row that were left to the stock engine, the next ones are so unseen: 1, 3, 7, then 15 of them
//     between two that are looked at. What begins to repeat is therefore found, and hits give the credit back.

#include "base/api.h"
#include "base/fork.h"
#include "cache/key.h"
#include "engine/options.h"
#include "engine/variants.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace hindcast::engine {

/// The guard lets structures go that do not pay. One that looks for infinities wants to see every gradient.
bool backs_off(const Options& options);

/// For a start behind a boundary, which is a structure of its own. `resumed`: the facts of what flows in there.
cache::KeyHash structure_of_rest(const cache::KeyHash& structure, Start start, const capture::Facts& resumed);

class HINDCAST_API Payoff {
 public:
  static Payoff& of_process();

  /// Of the call that is looked at now: they are counted.
  uint64_t next() { return clock_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// How the captures that are kept stand when one more is asked for.
  struct Room {
    bool is_full = false;
    uint64_t least_recent_use = 0;  // number of the call that last used the one that would go
  };

  /// A structure that was not found by call number `now`. True: capture it. `room` is asked where it counts.
  template <class AskRoom>
  bool may_capture(const cache::KeyHash& structure, uint64_t now, AskRoom room) {
    const Sighting seen = sight(structure, now);
    if (seen.is_never_kept) return false;
    const bool is_welcome = seen.count != 0 || credit_.load(std::memory_order_relaxed) > 0;
    if (!is_welcome) return false;
    const Room there_is = room();
    if (!there_is.is_full) return true;
    return seen.count != 0 && (now - seen.first) / seen.count * kReturns < now - there_is.least_recent_use;
  }
  /// It was captured, and is too large to be kept: not again.
  void too_large(const cache::KeyHash& structure);
  /// Its nodes ran once, to be captured, or an exception ended that, as a hook may end every backward. After some in a row: not again.
  void traced(const cache::KeyHash& structure, bool raised);

  void captured(size_t nodes) { credit_.fetch_sub(kPrice * weight_of(nodes), std::memory_order_relaxed); }
  /// A hit of a capture that had so many before.
  void hit(uint32_t earlier, size_t nodes) {
    if (earlier < kHitsThatCount) earn(weight_of(nodes));
  }
  void reset();
  /// How often reset() was called. What a thread keeps of the time before counts no more.
  uint64_t resets() const { return resets_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kPrice = 4, kCredit = 64 * kPrice;
  static constexpr uint32_t kHitsThatCount = 8;
  static int64_t weight_of(size_t nodes) {
    constexpr size_t kSmall = 128, kMost = 8;
    return static_cast<int64_t>(std::min(nodes / kSmall + 1, kMost));
  }
  static constexpr uint64_t kReturns = 16;
  static constexpr uint32_t kMostRaised = 8;
  struct Sighting {
    uint64_t structure = 0;
    uint64_t first = 0;   // number of the first call
    uint64_t latest = 0;  // number of the latest call
    uint32_t count = 0;   // 0: never seen
    uint32_t raised = 0;  // captures of it in a row that ended by an exception
    bool is_never_kept = false;
  };
  /// What was known of it; once more from now on.
  Sighting sight(const cache::KeyHash& structure, uint64_t now);
  /// The structure's sighting; if it has none, the least recent one among its four places, to be overwritten.
  Sighting& sighting_of(const cache::KeyHash& structure);
  void earn(int64_t amount);

  std::atomic<uint64_t> clock_ = 0;
  std::atomic<int64_t> credit_ = kCredit;
  std::atomic<uint64_t> resets_ = 0;
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // of what follows
  // A set of four places for each value of the hash's low bits. With one place, two structures that alternate would overwrite each other's
  // sighting, and neither would be captured.
  std::array<std::array<Sighting, 4>, 1024> sightings_ = {};
};

/// Calls in a row that this thread leaves to the stock engine unseen. A reset() on any thread ends it.
class Pause {
 public:
  static Pause& of_thread();

  /// True: leave this call, too.
  bool skips() {
    if (left_ == 0) return false;
    forget_time_before_reset();
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  /// A call was looked at, and left to the stock engine.
  void left_one() {
    forget_time_before_reset();
    if (++in_a_row_ <= kPatience) return;
    length_ = length_ < kLongest ? 2 * length_ + 1 : kLongest;
    left_ = length_;
  }
  void took_one() { in_a_row_ = length_ = left_ = 0; }
  /// How many calls to come it would skip. The caller skips them, and counts them.
  uint32_t take() {
    if (left_ != 0) forget_time_before_reset();
    return std::exchange(left_, 0);
  }

 private:
  void forget_time_before_reset() {
    const uint64_t resets = Payoff::of_process().resets();
    if (std::exchange(resets_, resets) != resets) took_one();
  }

  static constexpr uint32_t kPatience = 16, kLongest = 15;
  uint32_t in_a_row_ = 0, length_ = 0, left_ = 0;
  uint64_t resets_ = 0;  // when it began
};

}  // namespace hindcast::engine
