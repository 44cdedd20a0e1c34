#pragma once
// A run of a small program's steps that takes what it can from an earlier one.
//
// In a step of some microseconds, most of a kernel's call is not the kernel: sizes are evaluated, layouts compared, loops made, tensors
// allocated. All that is the same in each run with the same sizes and layouts. So such a run is recorded: values that only prepared calls
// read have no tensors, but places in one piece of memory, planned ahead from where each is made and last read; views of them are
// addresses. Other steps run as ever, on tensors in their slots.

#include "codegen/plan/plan.h"

#include <array>
#include <atomic>
#include <memory>
#include <vector>

namespace hindcast::codegen {

class PreparedRun {
 public:
  /// Runs all steps as execute() does. Null: too little of them can be prepared.
  static std::unique_ptr<const PreparedRun> record(const Plan& plan, Slots& slots, const capture::Env& env,
                                                   const std::vector<int64_t>& sizes);

  bool fits(const Slots& slots, const std::vector<int64_t>& sizes) const;
  void run(const Plan& plan, Slots& slots, const capture::Env& env) const;

 private:
  struct Result {
    uint32_t slot = 0;
    int64_t place = -1;  // in the run's memory; negative: it is a tensor
    TensorLayout layout;
  };
  /// A value whose address is asked for when it is in its slot.
  struct InSlot {
    uint32_t slot = 0;
    TensorLayout layout;
  };
  struct Item {
    uint32_t step = 0;
    std::unique_ptr<const PreparedCall> call;  // null: the step runs as it stands
    std::vector<SlotUse> inputs;               // a prepared call's
    std::vector<Result> results;               // the same
    std::vector<InSlot> made;                  // of another step: what prepared calls read
  };
  class Recording;

  std::vector<int64_t> sizes_;
  std::vector<InSlot> inputs_;  // of the program, that prepared calls read
  std::vector<Item> items_;
  const PreparedCall* maker_ = nullptr;  // of tensors and of the run's memory
  int64_t bytes_ = 0;
};

/// Those of one plan. Safe from many threads: what is there stays.
class PreparedRuns {
 public:
  PreparedRuns() = default;
  ~PreparedRuns();
  PreparedRuns(const PreparedRuns&) = delete;
  PreparedRuns& operator=(const PreparedRuns&) = delete;

  /// Runs all steps, prepared or recording. False: nothing has run. `sizes`: the integers that `env` was evaluated from. Below autograd.
  bool run(const Plan& plan, Slots& slots, const capture::Env& env, const std::vector<int64_t>& sizes) const;

  /// For tests: which run of a plan is recorded first, of those that no recorded one is for.
  static void set_first_recorded(uint32_t run);

 private:
  static constexpr size_t kMost = 4;
  mutable std::array<std::atomic<const PreparedRun*>, kMost> recorded_{};
  mutable std::atomic<uint32_t> others_ = 0;  // runs that no recorded one fitted
};

}  // namespace hindcast::codegen
