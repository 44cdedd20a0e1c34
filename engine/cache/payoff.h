#pragma once
// Decides whether a capture is likely to pay.
//
// A capture costs as much as three to four backwards of the stock engine, and each hit earns back part of one. A program whose backwards
// all differ in structure, or that cycles through more structures than the cache holds, would pay forever and gain nothing. Therefore:
//
//   - Captures are paid from a credit. Each costs four units, and each of its first eight hits earns one. Without credit, a structure is
//     captured when it is seen for the second time; for each 64 captures of debt, one time later, up to the ninth. A large backward counts
//     as several, up to eight, since the time and memory of a capture grow with its nodes. So a program with packed sequences, where each
//     set of lengths is a structure, wastes few captures.
//   - Once the cache is full, a structure must recur sixteen times while the least recently used one is not used at all. Of 257
//     structures in rotation, 256 stay, and the one without room runs on the stock engine.
//   - After some calls that were left to the stock engine, the next ones go there without being looked at: 1, 3, 7, then 15 between two
//     that are. A hit offsets four of such calls, which is about what it gains and what looking at them costs; so fewer hits than one in
//     five do not end it for long. A program that starts to repeat is noticed, and its hits earn the credit back.

#include "base/fork.h"
#include "cache/key.h"
#include "engine/cache/variants.h"
#include "hindcast/api.h"
#include "hindcast/options.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace hindcast::engine {

/// True if the guard leaves calls that do not pay to the stock engine. Not with nan_guard, which must see every gradient.
bool backs_off(const Options& options);

/// The hash of a continuation after a boundary, which counts as a structure of its own. `resumed`: the facts of the tensors that flow in.
cache::KeyHash structure_of_rest(const cache::KeyHash& structure, Start start, const capture::Facts& resumed);

class HINDCAST_API Payoff {
 public:
  static Payoff& of_process();

  /// The number of the call that begins now.
  uint64_t next() { return clock_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// The state of the cache when one more capture is considered.
  struct Room {
    bool is_full = false;
    uint64_t least_recent_use = 0;  // number of the call that last used the capture that would be evicted
  };

  /// Call number `now` missed on `structure`. Returns true if it should be captured. `room` is called only if the answer depends on it.
  template <class AskRoom>
  bool may_capture(const cache::KeyHash& structure, uint64_t now, AskRoom room) {
    const Sighting seen = sight(structure, now);
    if (seen.is_never_kept) return false;
    if (seen.count < sightings_needed()) return false;
    const Room there_is = room();
    if (!there_is.is_full) return true;
    return seen.count != 0 && (now - seen.first) / seen.count * kReturns < now - there_is.least_recent_use;
  }
  /// The structure's capture was too large to be kept: never capture it again.
  void too_large(const cache::KeyHash& structure);
  /// A capture of the structure has ended. `raised`: by an exception, as when a hook ends every backward. After some of these in a row,
  /// the structure is not captured again.
  void traced(const cache::KeyHash& structure, bool raised);

  void captured(size_t nodes) { credit_.fetch_sub(kPrice * weight_of(nodes), std::memory_order_relaxed); }
  /// Counts a hit of a capture that had `earlier` hits before.
  void hit(uint32_t earlier, size_t nodes) {
    if (earlier < kHitsThatCount) earn(weight_of(nodes));
  }
  void reset();
  /// How often reset() was called: per-thread state from before the last one is invalid.
  uint64_t resets() const { return resets_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kPrice = 4, kCredit = 64 * kPrice;
  static constexpr uint32_t kHitsThatCount = 8;
  static int64_t weight_of(size_t nodes) {
    constexpr size_t kSmall = 128, kMost = 8;
    return static_cast<int64_t>(std::min(nodes / kSmall + 1, kMost));
  }
  uint32_t sightings_needed() const {
    constexpr int64_t kMost = 8;
    const int64_t credit = credit_.load(std::memory_order_relaxed);
    return credit > 0 ? 0 : static_cast<uint32_t>(std::min(1 - credit / kCredit, kMost));
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
  /// Returns the structure's sighting as it was before this call, and counts this call.
  Sighting sight(const cache::KeyHash& structure, uint64_t now);
  /// The structure's sighting; for a structure that was not seen, the least recent of its set's four, to be overwritten.
  Sighting& sighting_of(const cache::KeyHash& structure);
  void earn(int64_t amount);

  std::atomic<uint64_t> clock_ = 0;
  std::atomic<int64_t> credit_ = kCredit;
  std::atomic<uint64_t> resets_ = 0;
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // guards what follows
  // 4-way set-associative by the hash's low bits. With one way, two alternating structures would overwrite each other's sighting, and
  // neither would be captured.
  std::array<std::array<Sighting, 4>, 1024> sightings_ = {};
};

/// A series of calls that this thread leaves to the stock engine without looking at them. Payoff::reset() on any thread ends it.
class Pause {
 public:
  static Pause& of_thread();

  /// True if this call is to be skipped too.
  bool skips() {
    if (left_ == 0) return false;
    forget_time_before_reset();
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  /// A call was examined, and left to the stock engine.
  void left_one() {
    forget_time_before_reset();
    if (left_out_ < kMost) ++left_out_;
    if (left_out_ <= kPatience) return;
    length_ = length_ < kLongest ? 2 * length_ + 1 : kLongest;
    left_ = length_;
  }
  void took_one() {
    left_out_ -= std::min(left_out_, kOffset);
    length_ = left_ = 0;
  }
  /// Returns how many of the next calls to skip, and ends the pause: the caller skips and counts them.
  uint32_t take() {
    if (left_ != 0) forget_time_before_reset();
    return std::exchange(left_, 0);
  }

 private:
  void forget_time_before_reset() {
    const uint64_t resets = Payoff::of_process().resets();
    if (std::exchange(resets_, resets) != resets) left_out_ = length_ = left_ = 0;
  }

  static constexpr uint32_t kPatience = 16, kLongest = 15, kOffset = 4, kMost = kPatience + kOffset;
  uint32_t left_out_ = 0;  // calls, less those that hits offset
  uint32_t length_ = 0, left_ = 0;
  uint64_t resets_ = 0;  // Payoff::resets() when the pause began
};

}  // namespace hindcast::engine
