#pragma once
// Packs rows that consist of many short segments in memory, such as a channel of small images.
//
// A loop over a segment of a few elements has more overhead than work, and does not fill vectors. So a few rows at a time are copied to
// contiguous memory, the kernel runs on the copies, and its results are copied back. Adjacent rows are copied together, segment by segment:
// if their segments are adjacent too, as those of channels are, each cache line is accessed once.

#include "codegen/cpu/source.h"
#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen::cpu {

/// What a kernel does with the memory at one of its pointers.
enum class Traffic : uint8_t {
  Read,     // elements of the row
  Written,  // elements of the row
  Other,    // not packed: one number per row; the same for all rows; results over rows (those by column are contiguous in any case)
};

class RowPacking {
 public:
  /// `traffic` and `widths`, bytes of an element, are indexed by pointer.
  static bool are_worth_copying(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths, int64_t segments, int64_t segment_length);
  RowPacking(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths, const Loop& segments, int64_t segment_length);

  /// Runs the kernel on some rows.
  void run(RowsKernel* kernel, const device::RowLoopArguments& rows);

 private:
  int64_t row_length() const { return segments_.size * segment_length_; }

  const c10::ArrayRef<Traffic> traffic_;
  const c10::ArrayRef<int64_t> widths_;
  const Loop& segments_;
  const int64_t segment_length_;
  int64_t rows_at_once_ = 1;
  std::vector<char> copies_;
};

}  // namespace hindcast::codegen::cpu
