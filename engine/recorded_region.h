#pragma once
// One region of a plan: watched for some hits, then recorded, then launched instead of being run step by step.
//
// A recording has addresses in it. Inputs must lie where they lay, as LibTorch's caching allocators see to in programs whose steps are
// alike. Where one lies elsewhere after all,
//
//   it is copied, if it is small and was seen to move before the recording: to a place of the recording's own, all of them at once;
//   kernels are told its new place, if only kernels of hindcast read it;
//   else the region is recorded again, and then given up.
//
// What the region makes lies in the recording's memory, and is copied to where it is wanted (engine/delivery.h).

#include "capture/backward/collected.h"
#include "capture/graph/shared_memory.h"
#include "codegen/kernel/backend.h"
#include "engine/delivery.h"
#include "engine/regions.h"

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

namespace hindcast::engine {

/// Hits with equal sizes before a region is recorded.
inline constexpr uint32_t kHitsBeforeRecording = 3;
/// Times that a recording is thrown away since an input lies elsewhere, until its region is given up.
inline constexpr uint32_t kMostMisfits = 4;
/// Captures that fail, until its region is given up.
inline constexpr uint32_t kMostFailures = 3;
/// An input that is copied before each launch is smaller. Bytes.
inline constexpr int64_t kLargestCopiedInput = int64_t{1} << 20;
/// What is copied for each step that is not given by itself: less time on a card than the host takes for a step. Bytes.
inline constexpr int64_t kMostCopiedForACall = int64_t{1} << 20;

struct RegionCall {
  const BackwardPlan& plan;
  codegen::Slots& slots;
  const capture::Env& env;
  const capture::Collected& collected;
};

class RecordedRegion {
 public:
  /// Both outlive it.
  RecordedRegion(const Region& region, const codegen::Backend& backend) : region_(region), backend_(backend) {}

  const Region& region() const { return region_; }
  /// True: the region is done. `delivered` has, for its events, what they read, and slots have what later steps read. Throws what its ops
  /// throw, before anything has an effect.
  bool run(const RegionCall& call, std::vector<Delivered>& delivered);
  /// Of device memory that it keeps.
  size_t bytes() const { return bytes_; }
  /// Gives that memory back. The region may be recorded again.
  void forget();
  /// The same, and it is run step by step from now on.
  void give_up(const RegionCall& call, std::string why, const std::string& detail = {});
  /// Slots of numbers of the host that are other ones than a step ago. Its steps are then run one by one.
  const std::vector<uint32_t>& changed_numbers() const { return changed_numbers_; }
  /// Why it is run step by step from now on; empty: it is not, or not for good.
  const std::string& why_not() const { return why_not_; }

 private:
  struct Input {
    bool is_defined = false;
    bool moves = false;           // from one hit to the next
    bool is_read_by_ops = false;  // and not by kernels alone
    uintptr_t address = 0;
    capture::MemoryRange memory;                // of its storage: views may reach all of it
    const c10::StorageImpl* storage = nullptr;  // while it is recorded
    c10::DimVector sizes, strides;
    at::Tensor copy;  // where it moves
  };
  /// What the region makes for one event, or for a slot.
  struct Made {
    uint32_t step = codegen::kNoSlot, slot = codegen::kNoSlot;
    at::Tensor tensor;                  // of the recording's memory
    uint32_t input = codegen::kNoSlot;  // else a view of this input's memory,
    c10::DimVector sizes, strides;      // which lies like this,
    int64_t offset = 0;                 // from the input's first element
  };

  static void note_place(Input& input, const at::Tensor& tensor);
  bool is_as_it_was(size_t input, const at::Tensor& tensor) const;
  bool is_number_as_it_was(size_t number, const RegionCall& call) const;
  bool fits(const RegionCall& call);
  void watch(const RegionCall& call, bool is_misfit);
  void watch_numbers(const RegionCall& call);
  bool is_known_to_thread(const RegionCall& call);
  bool record(const RegionCall& call);
  void not_captured(const RegionCall& call, const std::string& why);
  void run_steps(const RegionCall& call, codegen::Slots& slots);
  void note_readers(const std::vector<const c10::StorageImpl*>& read, const codegen::Step& step, const codegen::Slots& slots);
  void keep(const RegionCall& call, Made made, const at::Tensor& tensor);
  void launch(const RegionCall& call, std::vector<Delivered>& delivered);
  void copy_inputs(const RegionCall& call);
  void deliver(const RegionCall& call, const Made& made, Delivery& delivery) const;

  const Region& region_;
  const codegen::Backend& backend_;
  std::unique_ptr<codegen::Recording> recording_;
  std::vector<Input> inputs_;    // as Region::inputs
  std::vector<double> numbers_;  // as Region::numbers
  std::vector<uint32_t> changed_numbers_;
  std::vector<Made> made_;  // some of it in the recording's memory, and so destroyed before it
  uint32_t hits_ = 0, misfits_ = 0, failures_ = 0;
  std::vector<uint32_t> threads_;  // that ran it step by step last, by number
  size_t new_threads_ = 0;         // that came one behind the other
  int64_t copied_bytes_ = 0;
  size_t bytes_ = 0;
  std::string why_not_;
};

}  // namespace hindcast::engine
