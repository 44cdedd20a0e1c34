#pragma once
// Launches of hindcast's kernels that a recording has, so that they can be told that a tensor lies elsewhere.

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
  };
  /// Whether any was; none: it cannot be.
  static std::optional<bool> move_pointers(Kept& kept, c10::ArrayRef<MovedMemory> moved);

  std::vector<Kept> all_;
};

}  // namespace hindcast::codegen::cuda
