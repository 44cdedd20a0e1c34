#pragma once
// One region of a plan: observed for some hits, then captured into a CUDA graph, then launched instead of being run step by step.
//
// A CUDA graph contains addresses, so inputs must be at the same addresses in each launch. LibTorch's caching allocators provide that
// in programs whose training steps repeat. If an input is at another address after all, then
//
//   if it is small and was seen to move before the capture, it is copied into the CUDA graph's own memory, together with all such inputs;
//   if only kernels of hindcast read it, their arguments in the CUDA graph are updated to the new address;
//   otherwise the region is captured again, and given up after some repetitions.
//
// The region's results are in the CUDA graph's memory, and are copied to where they are needed (engine/cuda_graphs/delivery.h).

#include "capture/backward/collected.h"
#include "capture/graph/shared_memory.h"
#include "codegen/kernel/backend.h"
#include "engine/cuda_graphs/delivery.h"
#include "engine/cuda_graphs/regions.h"

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

namespace hindcast::engine {

/// Hits with equal sizes before a region is captured into a CUDA graph.
inline constexpr uint32_t kHitsBeforeRecording = 3;
/// How often a CUDA graph is discarded because an input moved, before the region is given up.
inline constexpr uint32_t kMostMisfits = 4;
/// How many CUDA graph captures may fail before the region is given up.
inline constexpr uint32_t kMostFailures = 3;
/// Inputs are copied before each launch only if they are smaller. Bytes.
inline constexpr int64_t kLargestCopiedInput = int64_t{1} << 20;
/// Copied bytes allowed per computing step of the region: copying them takes the device less time than the host needs to launch a step.
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
  /// Returns true if the region has run. `delivered` then has what its events read, and the slots have what later steps read. Rethrows
  /// what its ops throw, before any effect.
  bool run(const RegionCall& call, std::vector<Delivered>& delivered);
  /// Bytes of device memory that the region keeps.
  size_t bytes() const { return bytes_; }
  /// Frees that memory. The region may be captured again.
  void forget();
  /// The same, and the region runs step by step from now on.
  void give_up(const RegionCall& call, std::string why, const std::string& detail = {});
  /// Slots of host scalars that have changed since the previous training step. The region then runs step by step.
  const std::vector<uint32_t>& changed_numbers() const { return changed_numbers_; }
  /// Why the region runs step by step from now on; empty if it does not, or not permanently.
  const std::string& why_not() const { return why_not_; }

 private:
  struct Input {
    bool is_defined = false;
    bool moves = false;           // its address changes from one hit to the next
    bool is_read_by_ops = false;  // read by ATen ops, not only by kernels of hindcast
    uintptr_t address = 0;
    capture::MemoryRange memory;                // of the whole storage, since views may reach all of it
    const c10::StorageImpl* storage = nullptr;  // set during the CUDA graph capture
    c10::DimVector sizes, strides;
    at::Tensor copy;  // the CUDA graph's own copy, for inputs that move
  };
  /// A result of the region, for one event or for one slot.
  struct Made {
    uint32_t step = codegen::kNoSlot, slot = codegen::kNoSlot;
    at::Tensor tensor;                  // in the CUDA graph's memory; undefined for a view of an input
    uint32_t input = codegen::kNoSlot;  // the input that it is a view of,
    c10::DimVector sizes, strides;      // with these sizes and strides,
    int64_t offset = 0;                 // at this offset from the input's first element
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
  std::vector<Input> inputs_;    // parallel to Region::inputs
  std::vector<double> numbers_;  // parallel to Region::numbers
  std::vector<uint32_t> changed_numbers_;
  std::vector<Made> made_;  // may be in the CUDA graph's memory: destroyed before recording_
  uint32_t hits_ = 0, misfits_ = 0, failures_ = 0;
  std::vector<uint32_t> threads_;  // numbers of the threads that have run it step by step, most recent last
  size_t new_threads_ = 0;         // consecutive runs, each by a new thread
  int64_t copied_bytes_ = 0;
  size_t bytes_ = 0;
  std::string why_not_;
};

}  // namespace hindcast::engine
