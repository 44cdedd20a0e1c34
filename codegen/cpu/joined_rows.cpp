#include "codegen/cpu/joined_rows.h"

#include <algorithm>
#include <cstring>

namespace hindcast::codegen::cpu {
namespace {

// Elements. For rows of kShort and more, the overhead per row does not matter; joined rows have at most kLong.
constexpr int64_t kShort = 256, kLong = 1024;
// The least number of joined rows, and of row transitions saved, for joining to pay for merging the results of the rows.
constexpr int64_t kLeastRows = 16, kLeastSaved = 64;
constexpr int64_t kAlignment = 16;

int64_t rows_in_one(int64_t rows, int64_t length) {
  if (length == 0 || length >= kShort) return 1;
  const int64_t count = std::max<int64_t>(std::min(kLong / length, rows / kLeastRows), 1);
  return rows - rows / count < kLeastSaved ? 1 : count;
}

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

bool JoinedRows::may_be(const Body& body) {
  return std::none_of(body.loads.begin(), body.loads.end(),
                      [](const BodyLoad& load) { return load.pattern == AccessPattern::PerSegment; }) &&
         std::all_of(body.ops.begin(), body.ops.end(), [](const BodyOp& op) { return op.kind == BodyOp::Kind::Functor; }) &&
         std::all_of(body.stores.begin(), body.stores.end(),
                     [](const BodyStore& store) { return store.extent == Extent::Element || store.extent == Extent::Columns; });
}

void JoinedRows::join(const Body& body, const PartialResults& over_rows, c10::ArrayRef<int64_t> widths, RowFrame::Rows& rows) {
  if (rows.rows.size() != 1 || rows.columns.size() != 1) return;
  Loop &outer = rows.rows[0], &columns = rows.columns[0];
  const int64_t count = rows_in_one(outer.size, columns.size);
  if (count == 1) return;
  const auto is_over_rows = [&](size_t i) { return i >= body.loads.size() && body.stores[i - body.loads.size()].is_over_rows(); };
  c10::SmallVector<size_t, 8> repeated;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (is_over_rows(i)) continue;
    const bool is_broadcast = i < body.loads.size() && body.loads[i].pattern == AccessPattern::Broadcast;
    if (is_broadcast && outer.steps[i] == 0) continue;
    if (is_broadcast || columns.steps[i] != widths[i]) return;
    if (outer.steps[i] == columns.size * widths[i]) continue;
    if (outer.steps[i] != 0 || i >= body.loads.size()) return;
    repeated.push_back(i);
  }

  count_ = count;
  counts_ = rows.counts;
  results_ = rows.pointers;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    if (body.stores[i].is_over_rows()) rows.counts[i] *= count;
  }
  const int64_t results = aligned(over_rows.bytes(rows.counts));
  int64_t bytes = results;
  for (const size_t i : repeated) bytes += aligned(count * columns.size * widths[i]);
  memory_.resize(static_cast<size_t>(bytes));
  over_rows.move_to(memory_.data(), rows.pointers, rows.counts);
  char* to = memory_.data() + results;
  for (const size_t i : repeated) {
    const int64_t row = columns.size * widths[i];
    for (int64_t n = 0; n < count; ++n) std::memcpy(to + n * row, rows.pointers[i], static_cast<size_t>(row));
    rows.pointers[i] = to;
    to += aligned(count * row);
  }

  rest_ = outer.size % count;
  rows.row_count = outer.size /= count;
  columns.size *= count;
  for (int64_t& step : outer.steps) step *= count;
}

void JoinedRows::merge_results(const PartialResults& over_rows, const RowFrame::Rows& rows) {
  if (count_ == 1) return;
  over_rows.clear(results_, counts_);
  Pointers from = rows.pointers;
  for (int64_t n = 0; n < count_; ++n, merged_ += rows.row_count) {
    over_rows.merge(results_, merged_, from, rows.row_count, counts_);
    over_rows.advance(from, counts_);
  }
}

void JoinedRows::go_on_with_rest(const PartialResults& over_rows, RowFrame::Rows& rows) {
  Loop& outer = rows.rows[0];
  for (size_t i = 0; i < outer.steps.size(); ++i) {
    if (rows.pointers[i] != nullptr) rows.pointers[i] += outer.size * outer.steps[i];
    outer.steps[i] /= count_;
  }
  rows.row_count = outer.size = rest_;
  rows.columns[0].size /= count_;
  rows.counts = counts_;
  over_rows.move_to(memory_.data(), rows.pointers, counts_);
  over_rows.clear(rows.pointers, counts_);
  count_ = 1;
}

void JoinedRows::merge_rest(const PartialResults& over_rows, const RowFrame::Rows& rows) const {
  over_rows.merge(results_, merged_, rows.pointers, rest_, counts_);
}

}  // namespace hindcast::codegen::cpu
