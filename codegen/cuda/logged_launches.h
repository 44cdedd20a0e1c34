#pragma once
// The launches of hindcast's kernels in a recording. They can be given a tensor's new address, and those of sets new scalars.

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
    void* node = nullptr;  // of whoever records
  };

  void add(const Launch& launch, void* node);

  /// Launches of sets that `give` makes on this thread replace the logged ones, in their order: `update` is called for each whose argument
  /// differs. False: the kernels or their number differ, and nothing was updated.
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
  /// The one that launches of sets on this thread go to now; null: none.
  static LoggedLaunches* replaced_now();
  void replace_next(const Launch& launch);

  /// Calls `update` for each launch that reads moved memory, with its new argument. False: one was made for the place of its memory, or it
  /// cannot be told whether it reads it; some may be changed then.
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
    std::vector<uint16_t> pointers;  // words
    bool is_movable = true;          // each pointer lies in the memory that it leads to
    bool is_of_sets = false;
    void* function = nullptr;
    Dim grid;
  };
  bool gather_replacements(c10::function_ref<void()> give);
  /// Whether any was; none: it cannot be.
  static std::optional<bool> move_pointers(Kept& kept, c10::ArrayRef<MovedMemory> moved);

  std::vector<Kept> all_;
  std::vector<std::vector<uint64_t>> replacements_;  // for those of sets
  size_t next_ = 0;                                  // of all_, behind the last that is replaced
  bool fits_ = false;
};

}  // namespace hindcast::codegen::cuda
