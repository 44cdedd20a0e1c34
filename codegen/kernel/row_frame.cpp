#include "codegen/kernel/row_frame.h"

#include "codegen/kernel/operand_copies.h"

#include "base/check.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>

namespace hindcast::codegen {
namespace {

// Whether merging segments would change the results.
bool keeps_segments(const Body& body) {
  const bool by_op = std::any_of(body.ops.begin(), body.ops.end(), [](const BodyOp& op) {
    return op.kind == BodyOp::Kind::Reduction && op.reduction.kind != Reduction::Kind::Sum && op.reduction.over != Reduction::Over::Row;
  });
  return by_op || std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) {
           return store.extent == Extent::Channels && store.over_rows != Reduction::Kind::Sum;
         });
}

// Whether the kernel reads or writes one number for all elements of a segment.
bool has_numbers_of_segments(const Body& body) {
  return std::any_of(body.loads.begin(), body.loads.end(),
                     [](const BodyLoad& load) { return load.pattern == AccessPattern::PerSegment; }) ||
         std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) { return store.extent == Extent::Channels; });
}

}  // namespace

RowFrame::RowFrame(const Group& group, const ResultMaker& maker) : CallFrame(group, maker) {
  for (uint8_t axis = 0; axis < group.domain.size(); ++axis) (group.columns >> axis & 1 ? column_axes_ : row_axes_).push_back(axis);
  for (const uint8_t axis : column_axes_) (group.channels >> axis & 1 ? segment_axes_ : axes_of_segment_).push_back(axis);
  keeps_segments_ = keeps_segments(group.body);
  has_numbers_of_segments_ = has_numbers_of_segments(group.body);
  for (const BodyOp& op : group.body.ops)
    needs_elements_ = needs_elements_ || (op.kind == BodyOp::Kind::Reduction && op.reduction.kind != Reduction::Kind::Sum);
  for (const BodyStore& store : group.body.stores)
    needs_rows_ = needs_rows_ || (store.is_over_rows() && store.over_rows != Reduction::Kind::Sum);
}

ResultLayout RowFrame::layout_of(const Call& call, size_t store) const {
  const Ints shape = sizes_of(group_.shapes[store], call.env);
  return {shape, dense_strides(shape, group_.orders[store]), group_.body.stores[store].type};
}

bool RowFrame::is_read_as_written(size_t store) const {
  return std::all_of(group_.accesses.begin(), group_.accesses.end(),
                     [&](const Access& access) { return goes_along(access, group_.orders[store]); });
}

void RowFrame::lay_out_rows(const Call& call, Rows& rows) const {
  const at::IntArrayRef domain = call.domain;
  c10::SmallVector<Ints, 16> steps;
  const bool is_empty = call.is_empty();
  for (size_t i = 0; i < loads_; ++i) {
    rows.tensors.push_back(call.load(i));
    if (C10_UNLIKELY(is_empty) && rows.tensors.back().numel() == 0) {
      // Its strides are arbitrary, and it has no memory. A kernel reads a number per row all the same, for results without elements.
      rows.tensors.back() = at::zeros({1}, rows.tensors.back().options());
      steps.emplace_back(domain.size(), 0);
      continue;
    }
    steps.push_back(byte_strides_of(rows.tensors.back(), group_.accesses[i], domain, call.env));
    if (C10_UNLIKELY(!is_empty && !goes_as_captured(i, domain, steps.back()))) {
      // Layouts are guarded: the kernel would read one of several numbers.
      HC_CHECK(group_.body.loads[i].pattern == AccessPattern::Dense, "a number per row or channel at capture has more numbers now");
      make_dense(rows.tensors.back(), steps.back(), domain);
    }
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    const BodyStore& store = group_.body.stores[i];
    rows.tensors.push_back(call.results[i]);
    rows.counts.push_back(rows.tensors.back().numel());
    const at::ScalarType type = store.is_over_rows() ? group_.body.compute : store.type;
    steps.push_back(steps_of_result(i, domain, static_cast<int64_t>(c10::elementSize(type))));
  }
  rows.rows = make_nest(domain, row_axes_, steps);
  rows.columns = columns_of(domain, steps);
  if (C10_UNLIKELY(rows.columns.size() > 2)) {  // because of loads that are broadcast within the row, or among its channels
    for (size_t i = 0; i < loads_; ++i) {
      const AccessPattern pattern = group_.body.loads[i].pattern;
      if (pattern == AccessPattern::Dense) make_dense(rows.tensors[i], steps[i], domain);
      if (pattern == AccessPattern::PerSegment) make_dense_by_channel(rows.tensors[i], steps[i], domain);
    }
    rows.columns = columns_of(domain, steps);
    rows.rows = make_nest(domain, row_axes_, steps);
    HC_CHECK(rows.columns.size() <= 2, "columns in more than two loops");
  }
  for (const Loop& loop : rows.rows) rows.row_count *= loop.size;
  for (const at::Tensor& tensor : rows.tensors) rows.pointers.push_back(memory_of(tensor));
  refuse_empty(rows);
}

// Copies the elements of a row next to each other. In the order of the domain they need not be: an axis of rows may lie between two of
// columns.
void RowFrame::make_dense(at::Tensor& tensor, Ints& steps, at::IntArrayRef domain) const {
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  std::vector<uint8_t> axes = row_axes_;
  axes.insert(axes.end(), column_axes_.begin(), column_axes_.end());
  Ints sizes, strides;
  for (const uint8_t axis : axes) {
    sizes.push_back(domain[axis]);
    strides.push_back(steps[axis] / bytes);
  }
  tensor = tensor.as_strided(sizes, strides).contiguous();
  ++operand_copies();
  const Ints dense = row_major_strides(sizes);
  for (size_t i = 0; i < axes.size(); ++i) steps[axes[i]] = dense[i] * bytes;
}

// A number for each row and channel.
void RowFrame::make_dense_by_channel(at::Tensor& tensor, Ints& steps, at::IntArrayRef domain) const {
  Ints sizes(domain.begin(), domain.end());
  for (const uint8_t axis : column_axes_) {
    if (!(group_.channels >> axis & 1)) sizes[axis] = 1;
  }
  make_dense(tensor, steps, sizes);
  for (const uint8_t axis : column_axes_) {
    if (!(group_.channels >> axis & 1)) steps[axis] = 0;
  }
}

// The loops along a row. A sum may treat adjacent segments as one. Segments of one element stay apart: the loop over them would be taken
// for one along a single segment.
c10::SmallVector<Loop, 4> RowFrame::columns_of(at::IntArrayRef domain, c10::ArrayRef<Ints> steps) const {
  const auto is_one = [&](uint8_t axis) { return domain[axis] == 1; };
  const bool are_apart =
      keeps_segments_ || (has_numbers_of_segments_ && std::all_of(axes_of_segment_.begin(), axes_of_segment_.end(), is_one));
  if (segment_axes_.empty() || !are_apart) return make_nest(domain, column_axes_, steps);
  c10::SmallVector<Loop, 4> columns = make_nest(domain, segment_axes_, steps);
  for (Loop& loop : make_nest(domain, axes_of_segment_, steps)) columns.push_back(std::move(loop));
  return columns;
}

// Throws for a reduction of no elements, as ATen's amax() does.
void RowFrame::refuse_empty(const Rows& rows) const {
  const bool has_result = std::any_of(rows.counts.begin(), rows.counts.end(), [](int64_t count) { return count != 0; });
  if (rows.row_count * rows.row_length() != 0 || !has_result) return;
  if (rows.row_count == 0 ? needs_rows_ : needs_elements_) throw std::invalid_argument("a maximum, minimum or mean of no elements");
}

// Whether the load has the access pattern that it had at capture. Broadcast: one number per row. PerSegment: one number per channel of the
// row. Dense: contiguous along the innermost axis.
bool RowFrame::goes_as_captured(size_t load, at::IntArrayRef domain, const Ints& steps) const {
  const BodyLoad& as = group_.body.loads[load];
  bool innermost = true;
  for (size_t i = column_axes_.size(); i-- > 0;) {
    if (domain[column_axes_[i]] == 1) continue;
    const int64_t step = steps[column_axes_[i]];
    switch (as.pattern) {
      case AccessPattern::Broadcast:
        if (step != 0) return false;
        break;
      case AccessPattern::PerSegment:
        if (step != 0 && !(group_.channels >> column_axes_[i] & 1)) return false;
        break;
      case AccessPattern::Dense:
        if (innermost && step != static_cast<int64_t>(c10::elementSize(as.type))) return false;
        break;
    }
    innermost = false;
  }
  return true;
}

Ints RowFrame::steps_of_result(size_t store, at::IntArrayRef domain, int64_t bytes) const {
  const Extent extent = group_.body.stores[store].extent;
  Ints steps(domain.size(), 0);
  int64_t step = bytes;
  for (size_t axis = domain.size(); axis-- > 0;) {
    const bool is_column = group_.columns >> axis & 1;
    if ((extent == Extent::Row && is_column) || (extent == Extent::Columns && !is_column)) continue;
    if (extent == Extent::Channels && !(group_.channels >> axis & 1)) continue;
    steps[axis] = step;
    step *= domain[axis];
  }
  return steps;
}

}  // namespace hindcast::codegen
