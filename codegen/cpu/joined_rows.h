#pragma once
// Short rows, several of them taken as one long row.
//
// A kernel goes from row to row. At rows of some dozen elements, as the channels of a pixel are where images lie channels-last, the way from
// one to the next costs more than the elements do. Where rows follow each other in memory and none has a number of its own, several rows are
// one long row for the kernel: what is the same for all rows is repeated, and each row in the long one has its own results over rows, which
// are merged at the end.

#include "codegen/cpu/partial_results.h"
#include "codegen/kernel/row_frame.h"

#include <vector>

namespace hindcast::codegen::cpu {

class JoinedRows {
 public:
  /// Nothing is reduced over a row.
  static bool may_be(const Body& body);

  /// Joins rows where that is worth what it costs; else they stay as they are. `widths`: an element's bytes, by pointer. The pointers to
  /// results over rows are to memory of the object, then.
  void join(const Body& body, const PartialResults& over_rows, c10::ArrayRef<int64_t> widths, RowFrame::Rows& rows);
  /// To where the results over rows belong, if rows were joined.
  void merge_results(const PartialResults& over_rows, const RowFrame::Rows& rows);

  /// Rows at the end that are too few for a long one, if rows were joined.
  bool has_rest() const { return rest_ != 0; }
  /// `rows` are those now, behind the joined ones, short.
  void go_on_with_rest(const PartialResults& over_rows, RowFrame::Rows& rows);
  void merge_rest(const PartialResults& over_rows, const RowFrame::Rows& rows) const;

 private:
  int64_t count_ = 1;  // of rows in one
  int64_t rest_ = 0, merged_ = 0;
  Pointers results_;
  PartialResults::Counts counts_;  // of `results_`
  std::vector<char> memory_;
};

}  // namespace hindcast::codegen::cpu
