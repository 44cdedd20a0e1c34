#pragma once
// The launches of hindcast's kernels in a CUDA graph. Their arguments can be updated: to a tensor's new address, and for launches of sets
// (Backend::run_foreach()) to new scalars.

#include "codegen/cuda/machine.h"
#include "codegen/kernel/recording.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::codegen::cuda {

class LoggedLaunches {
 public:
  struct One {
    std::vector<uint64_t> argument;
    void* node = nullptr;  // opaque here: the caller's node of the CUDA graph
  };

  void add(const Launch& launch, void* node);

  /// Launches of sets that `give` makes on this thread replace the logged ones, in order: `update` is called for each whose argument
  /// differs.
  /// Returns false if the kernels or their number differ; then nothing was updated.
  template <class Update>
  bool replace_sets(c10::function_ref<void()> give, Update update) {
    if (!gather_replacements(give)) return false;
    size_t next = 0;
    for (Kept& kept : all_) {
      if (!kept.is_of_sets) continue;
      std::vector<uint64_t>& argument = replacements_[next++];
      if (argument == kept.argument) continue;
      kept.argument.swap(argument);
      update(static_cast<const One&>(kept));
    }
    return true;
  }
  /// The object that receives this thread's launches of sets during replace_sets(); nullptr otherwise.
  static LoggedLaunches* replaced_now();
  void replace_next(const Launch& launch);

  /// Calls `update` for each launch that reads moved memory, with its new argument. Returns false if a launch depends on the old address,
  /// or if it is unknown whether it reads the memory; some launches may have been updated then.
  template <class Update>
  bool move(c10::ArrayRef<MovedMemory> moved, Update update) {
    for (Kept& kept : all_) {
      const std::optional<bool> changed = move_pointers(kept, moved);
      if (!changed) return false;
      if (*changed) update(static_cast<const One&>(kept));
    }
    return true;
  }

 private:
  struct Kept : One {
    std::vector<uint16_t> pointers;  // indices of the words that are addresses
    bool is_movable = true;          // each pointer is inside the memory that it is used to access
    bool is_of_sets = false;
    void* function = nullptr;
    Dim grid;
  };
  bool gather_replacements(c10::function_ref<void()> give);
  /// Whether any pointer was changed; nullopt if the launch cannot be updated.
  static std::optional<bool> move_pointers(Kept& kept, c10::ArrayRef<MovedMemory> moved);

  std::vector<Kept> all_;
  std::vector<std::vector<uint64_t>> replacements_;  // new arguments of the launches of sets
  size_t next_ = 0;                                  // index into all_, after the last replaced launch
  bool fits_ = false;
};

}  // namespace hindcast::codegen::cuda
