#pragma once
// The CUDA graphs of a variant: for each recent set of sizes, one per region of its plan.
//
// CUDA graphs hold device memory, which Options::cuda_graph_bytes bounds for the process. The least recently run plan frees its
// memory first.

#include "engine/cuda_graphs/recorded_region.h"
#include "engine/plan/backward_plan.h"
#include "hindcast/symbols.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hindcast::engine {

/// How many sets of sizes of one variant may be observed or have CUDA graphs at a time.
inline constexpr size_t kMostRecordedSizes = 4;
/// If more sets of sizes than this are evicted in a row before they were captured, sizes are taken to change all the time: at the start
/// of a program some evictions are normal.
inline constexpr uint32_t kMostOfAStart = 2 * kMostRecordedSizes;
/// A plan's CUDA graphs may be evicted for those of others once others have been launched this many times since its last launch.
inline constexpr uint64_t kIdleLaunches = 4;

/// The CUDA graphs of one plan for one set of values of its symbols. Only one run at a time may enter.
class RecordedPlan {
 public:
  static std::shared_ptr<RecordedPlan> make(std::shared_ptr<const BackwardPlan> plan, std::shared_ptr<const Regions> regions,
                                            const capture::Bindings& bindings);
  ~RecordedPlan();
  RecordedPlan(const RecordedPlan&) = delete;
  RecordedPlan& operator=(const RecordedPlan&) = delete;

  bool is_of(const capture::Bindings& bindings) const;
  /// True once a region was captured or given up.
  bool is_decided() const { return is_decided_.load(std::memory_order_relaxed); }

  /// Returns false if a run is inside. The caller (another thread, or user code within that run) then runs step by step.
  bool enter() { return !is_entered_.exchange(true, std::memory_order_acquire); }
  void leave();

  // For the run that has entered:
  /// The region that begins at this step; nullptr if no region begins there.
  RecordedRegion* region_at(uint32_t step);
  /// Like RecordedRegion::run. If its CUDA graph does not fit into `most_bytes`, idle plans free theirs, or the region is given up.
  bool run(RecordedRegion& region, const RegionCall& call, size_t most_bytes, std::vector<Delivered>& delivered);
  /// Why the whole plan does not run as one CUDA graph; empty if it does or will.
  std::string why_not_one() const;

  /// Bytes of device memory that all CUDA graphs of the process hold now.
  static size_t bytes_of_all();
  /// Frees the CUDA graphs of all plans in which no run is. Returns the bytes freed.
  static size_t trim();

 private:
  struct Registry;
  RecordedPlan(std::shared_ptr<const BackwardPlan> plan, std::shared_ptr<const Regions> regions, const capture::Bindings& bindings);
  void count_bytes(size_t before, size_t after);
  void make_regions();
  void cut_at(const std::vector<uint32_t>& numbers);
  void forget();
  /// Frees CUDA graphs of plans last used before `used_before`: two plans that do not fit together would otherwise recapture in turns.
  static bool make_room(const RecordedPlan* for_one, size_t most_bytes, uint64_t used_before);

  const std::shared_ptr<const BackwardPlan> plan_;  // keeps its kernels alive as long as the CUDA graphs that launch them
  std::shared_ptr<const Regions> found_;
  std::vector<uint32_t> changing_;  // slots of host scalars that change
  const capture::Bindings bindings_;
  std::vector<std::unique_ptr<RecordedRegion>> regions_;  // in order
  std::atomic<bool> is_entered_ = false, is_decided_ = false;
  std::atomic<uint64_t> last_use_ = 0;
  std::atomic<size_t> bytes_ = 0;
};

/// RAII guard: the plan is entered while the guard lives.
class EnteredPlan {
 public:
  EnteredPlan() = default;
  /// Empty if another run is inside already.
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
  struct PerSizes {
    std::shared_ptr<RecordedPlan> plan;  // for EnteredPlan
    std::string why_not = {};            // not empty if sets of sizes keep being evicted before they are captured
  };
  /// The CUDA graphs for these sizes; created if the plan or its sizes are new.
  PerSizes of(const std::shared_ptr<const BackwardPlan>& plan, const capture::Bindings& bindings);

  /// Stores why the variant has no CUDA graphs, a static string. Returns false if the last reason was the same.
  bool is_news(const char* why_not) { return told_.exchange(why_not, std::memory_order_relaxed) != why_not; }

 private:
  std::atomic<const char*> told_ = nullptr;
  std::shared_ptr<const BackwardPlan> plan_;  // the plan of all plans_
  std::shared_ptr<const Regions> regions_;
  std::vector<std::shared_ptr<RecordedPlan>> plans_;  // most recently used first
  uint32_t gone_undecided_ = 0;                       // undecided plans evicted since the last decided one
};

}  // namespace hindcast::engine
