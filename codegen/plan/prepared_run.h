#pragma once
// Runs a small program's steps with what was precomputed in an earlier run of the same sizes and layouts.
//
// When a kernel takes a few microseconds, most of its call is overhead: evaluating sizes, comparing layouts, building loops, allocating
// tensors. All of that is the same in each run with the same sizes and layouts, so one such run is recorded. Values that only prepared
// calls read then have no tensors but offsets in one buffer, planned from where each is made and last read; views of them are addresses.
// Other steps run as usual, on tensors in their slots.

#include "codegen/plan/plan.h"

#include <array>
#include <atomic>
#include <memory>
#include <vector>

namespace hindcast::codegen {

class PreparedRun {
 public:
  /// Runs all steps as execute() does, and records them. Returns nullptr if too few of them can be prepared.
  static std::unique_ptr<const PreparedRun> record(const Plan& plan, Slots& slots, const capture::Env& env,
                                                   const std::vector<int64_t>& sizes);

  bool fits(const Slots& slots, const std::vector<int64_t>& sizes) const;
  void run(const Plan& plan, Slots& slots, const capture::Env& env) const;

 private:
  struct Result {
    uint32_t slot = 0;
    int64_t place = -1;  // byte offset in the run's buffer; negative: the result is a tensor in its slot
    TensorLayout layout;
  };
  /// A value in a slot, whose address prepared calls need.
  struct InSlot {
    uint32_t slot = 0;
    TensorLayout layout;
  };
  struct Item {
    uint32_t step = 0;
    std::unique_ptr<const PreparedCall> call;  // nullptr: the step is not prepared and runs as usual
    std::vector<SlotUse> inputs;               // of the prepared call
    std::vector<Result> results;               // of the prepared call
    std::vector<InSlot> made;                  // if not prepared: its results that prepared calls read
  };
  class Recording;

  std::vector<int64_t> sizes_;
  std::vector<InSlot> inputs_;  // the program's inputs that prepared calls read
  std::vector<Item> items_;
  const PreparedCall* maker_ = nullptr;  // allocates tensors and the run's buffer
  int64_t bytes_ = 0;
};

/// The prepared runs of one plan. Thread-safe: an entry is never changed or removed.
class PreparedRuns {
 public:
  PreparedRuns() = default;
  ~PreparedRuns();
  PreparedRuns(const PreparedRuns&) = delete;
  PreparedRuns& operator=(const PreparedRuns&) = delete;

  /// Runs all steps, from a prepared run or while recording one. Returns false if nothing has run. `sizes`: the integers that `env` was
  /// evaluated from. The caller must be below autograd.
  bool run(const Plan& plan, Slots& slots, const capture::Env& env, const std::vector<int64_t>& sizes) const;

  /// For tests: how many runs without a matching prepared run a plan makes before the first one is recorded.
  static void set_first_recorded(uint32_t run);

 private:
  static constexpr size_t kMost = 4;
  mutable std::array<std::atomic<const PreparedRun*>, kMost> recorded_{};
  mutable std::atomic<uint32_t> others_ = 0;  // runs without a matching prepared run
};

}  // namespace hindcast::codegen
