#pragma once
// Joins several short rows to one long row for the kernel.
//
// For rows of some dozen elements, such as the channels of a pixel in a channels-last image, the loop over rows costs more than the
// elements.
// If rows are contiguous in memory and no value is one number per row, several rows can be one long row for the kernel: operands that are
// broadcast over rows are repeated, and each of the joined rows has its own results over rows, which are merged at the end.

#include "codegen/cpu/partial_results.h"
#include "codegen/kernel/row_frame.h"

#include <vector>

namespace hindcast::codegen::cpu {

class JoinedRows {
 public:
  /// Whether rows may be joined: nothing is reduced over a row.
  static bool may_be(const Body& body);

  /// Joins rows if that pays; otherwise does nothing. `widths`: bytes of an element, by pointer. The pointers to results over rows then
  /// point to memory of this object.
  void join(const Body& body, const PartialResults& over_rows, c10::ArrayRef<int64_t> widths, RowFrame::Rows& rows);
  /// Merges the results over rows into their destination, if rows were joined.
  void merge_results(const PartialResults& over_rows, const RowFrame::Rows& rows);

  /// Whether rows were joined and some are left at the end, too few for a long row.
  bool has_rest() const { return rest_ != 0; }
  /// Sets `rows` to the remaining short rows.
  void go_on_with_rest(const PartialResults& over_rows, RowFrame::Rows& rows);
  void merge_rest(const PartialResults& over_rows, const RowFrame::Rows& rows) const;

 private:
  int64_t count_ = 1;  // rows per joined row
  int64_t rest_ = 0, merged_ = 0;
  Pointers results_;
  PartialResults::Counts counts_;  // of `results_`
  std::vector<char> memory_;
};

}  // namespace hindcast::codegen::cpu
