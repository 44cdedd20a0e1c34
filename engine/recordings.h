#pragma once
// What was recorded of a variant: for each of its recent sets of sizes, the regions of its plan.
//
// Recordings hold device memory, which Options::cuda_graph_bytes bounds for the process: those of the plan that was run the longest time
// ago give theirs back first.

#include "capture/symbols/symbols.h"
#include "engine/backward_plan.h"
#include "engine/recorded_region.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hindcast::engine {

/// Sets of sizes of one variant that are watched or recorded at a time.
inline constexpr size_t kMostRecordedSizes = 4;
/// So many sets that had to go for others one behind the other, before they were recorded, are more than those of a start.
inline constexpr uint32_t kMostOfAStart = 2 * kMostRecordedSizes;
/// Launches of others since its last one, after which a plan's recordings may go for those of others.
inline constexpr uint64_t kIdleLaunches = 4;

/// Of one plan under one set of values of its symbols. One run at a time is inside.
class RecordedPlan {
 public:
  static std::shared_ptr<RecordedPlan> make(std::shared_ptr<const BackwardPlan> plan, std::shared_ptr<const Regions> regions,
                                            const capture::Bindings& bindings);
  ~RecordedPlan();
  RecordedPlan(const RecordedPlan&) = delete;
  RecordedPlan& operator=(const RecordedPlan&) = delete;

  bool is_of(const capture::Bindings& bindings) const;
  /// Some of it was recorded, or was given up.
  bool is_decided() const { return is_decided_.load(std::memory_order_relaxed); }

  /// False: a run is inside. A run of another thread, or of user code within that one, then goes step by step.
  bool enter() { return !is_entered_.exchange(true, std::memory_order_acquire); }
  void leave();

  // Who entered:
  /// The region that begins at this step, if there is one.
  RecordedRegion* region_at(uint32_t step);
  /// True: the region is done, as RecordedRegion::run. Other recordings may lose theirs for its memory, or it gets none.
  bool run(RecordedRegion& region, const RegionCall& call, size_t most_bytes, std::vector<Delivered>& delivered);
  /// Why the whole plan is not run as one recording from now on; empty: it is, or will be.
  std::string why_not_one() const;

  /// Of device memory that all of the process hold, now.
  static size_t bytes_of_all();
  /// Gives back what those hold in which no run is. Bytes.
  static size_t trim();

 private:
  struct Registry;
  RecordedPlan(std::shared_ptr<const BackwardPlan> plan, std::shared_ptr<const Regions> regions, const capture::Bindings& bindings);
  void count_bytes(size_t before, size_t after);
  void make_regions();
  void cut_at(const std::vector<uint32_t>& numbers);
  void forget();
  /// Of those that were not used of late: else two that have no room together would take turns at recording.
  static bool make_room(const RecordedPlan* for_one, size_t most_bytes, uint64_t used_before);

  const std::shared_ptr<const BackwardPlan> plan_;  // its kernels live as long as recordings of them
  std::shared_ptr<const Regions> found_;
  std::vector<uint32_t> changing_;  // slots of numbers of the host
  const capture::Bindings bindings_;
  std::vector<std::unique_ptr<RecordedRegion>> regions_;  // in order
  std::atomic<bool> is_entered_ = false, is_decided_ = false;
  std::atomic<uint64_t> last_use_ = 0;
  std::atomic<size_t> bytes_ = 0;
};

/// A plan that was entered, for as long as it lives.
class EnteredPlan {
 public:
  EnteredPlan() = default;
  /// Of nobody where a run is inside already.
  explicit EnteredPlan(std::shared_ptr<RecordedPlan> plan) : plan_(plan->enter() ? std::move(plan) : nullptr) {}
  ~EnteredPlan() {
    if (plan_) plan_->leave();
  }
  EnteredPlan(EnteredPlan&&) = default;
  EnteredPlan(const EnteredPlan&) = delete;
  EnteredPlan& operator=(const EnteredPlan&) = delete;
  RecordedPlan* get() const { return plan_.get(); }

 private:
  std::shared_ptr<RecordedPlan> plan_;
};

/// Safe from many threads.
class Recordings {
 public:
  struct OfSizes {
    std::shared_ptr<RecordedPlan> plan;  // to be entered
    std::string why_not = {};            // sets of sizes go for others all the time, before they are recorded; empty: they do not
  };
  /// Made where the plan is new here, or its sizes are.
  OfSizes of(const std::shared_ptr<const BackwardPlan>& plan, const capture::Bindings& bindings);

  /// Why nothing is recorded of the variant, a text that stays. False: the last one was the same.
  bool is_news(const char* why_not) { return told_.exchange(why_not, std::memory_order_relaxed) != why_not; }

 private:
  std::atomic<const char*> told_ = nullptr;
  std::shared_ptr<const BackwardPlan> plan_;  // all are of this one
  std::shared_ptr<const Regions> regions_;
  std::vector<std::shared_ptr<RecordedPlan>> plans_;  // the one that was asked for last first
  uint32_t gone_undecided_ = 0;                       // since one went that was decided
};

}  // namespace hindcast::engine
