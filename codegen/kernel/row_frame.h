#pragma once
// The part of a row kernel's call that all backends share: the loops over rows, the loops along a row, and which tensors must be copied to
// another layout.

#include "codegen/kernel/call_frame.h"

#include <vector>

namespace hindcast::codegen {

class RowFrame : public CallFrame {
 public:
  RowFrame(const Group& group, const ResultMaker& maker);

  /// The memory layout of one call's tensors: loads, then results.
  struct Rows {
    c10::SmallVector<at::Tensor, 16> tensors;
    Pointers pointers;
    c10::SmallVector<Loop, 4> rows, columns;  // columns: one or two loops
    c10::SmallVector<int64_t, 16> counts;     // elements, by store
    int64_t row_count = 1;

    int64_t segments() const { return columns.size() > 1 ? columns[0].size : 1; }
    int64_t segment_length() const { return columns.back().size; }
    int64_t row_length() const { return segments() * segment_length(); }
  };

 protected:
  /// The byte strides of results over rows assume elements of the compute type. Throws for a maximum, minimum or mean of no elements, as
  /// ATen does.
  void lay_out_rows(const Call& call, Rows& rows) const;

  ResultLayout layout_of(const Call& call, size_t store) const final;
  /// Whether every load is read in the order of the store's dims. If not, an operand that is read in two orders is needed again for later
  /// rows, so the store must not reuse its memory.
  bool is_read_as_written(size_t store) const;

 private:
  c10::SmallVector<Loop, 4> columns_of(at::IntArrayRef domain, c10::ArrayRef<Ints> steps) const;
  void make_dense(at::Tensor& tensor, Ints& steps, at::IntArrayRef domain) const;
  void make_dense_by_channel(at::Tensor& tensor, Ints& steps, at::IntArrayRef domain) const;
  bool goes_as_captured(size_t load, at::IntArrayRef domain, const Ints& steps) const;
  Ints steps_of_result(size_t store, at::IntArrayRef domain, int64_t bytes) const;
  void refuse_empty(const Rows& rows) const;

  bool needs_elements_ = false, needs_rows_ = false;  // empty rows have no result; empty columns have no result
  std::vector<uint8_t> row_axes_, column_axes_;
  std::vector<uint8_t> segment_axes_, axes_of_segment_;  // of columns: axes that count segments, axes along one
  bool keeps_segments_ = false, has_numbers_of_segments_ = false;
};

}  // namespace hindcast::codegen
