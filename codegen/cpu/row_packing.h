#pragma once
// Rows whose elements lie in many short segments, as a channel's of small images do.
//
// A loop over a segment of some elements costs more around them than for them, and fills no vectors. So a few rows at a time are copied to
// where each lies in one piece, the kernel goes over those, and what it made is copied back. Neighbouring rows are copied together,
// segment by segment: where their segments are neighbours too, as those of channels are, each line of memory is touched once.

#include "codegen/kernel/launch_args.h"
#include "codegen/cpu/source.h"

#include <vector>

namespace hindcast::codegen::cpu {

/// What a kernel does with the memory at one of its pointers.
enum class Traffic : uint8_t {
  Read,     // elements of the row
  Written,  // elements of the row
  Other,    // numbers of the row; what is the same for all rows; sums over rows. Columns lie side by side, whatever their segments
};

class RowPacking {
 public:
  /// By pointer: what happens there, and an element's bytes.
  static bool are_worth_copying(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths, int64_t segments, int64_t segment_length);
  RowPacking(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths, const Loop& segments, int64_t segment_length);

  /// `rows` neighbours from `pointers` on, `row_steps` bytes apart. `kept`: as RowsKernel has it.
  void run(RowsKernel* kernel, const Pointers& pointers, const double* scalars, int64_t rows, c10::ArrayRef<int64_t> row_steps, char* kept);

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
