#include "codegen/cuda/row_source.h"

#include "base/format.h"
#include "codegen/cuda/body_lines.h"
#include "codegen/cuda/merge_source.h"
#include "codegen/cuda/row_writer.h"
#include "codegen/cuda/source.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

using base::format;
using Over = Reduction::Over;

std::string rows_struct(const Body& body) {
  const size_t stores = body.stores.size(), tensors = body.loads.size() + stores;
  return "struct Rows {\n" + argument_fields(body) +
         format(
             "  int64 rows, segments, columns;  // columns: of a segment\n"
             "  Divider pieces_of_segment;\n"
             "  int64 loops;  // around the rows, outermost first\n"
             "  Divider sizes[kMostLoops];\n"
             "  int64 row_strides[kMostLoops][{}], segment_strides[{}];\n"
             "  int64 partial_bytes[{}], counts[{}];  // of results over rows: from slice to slice, and how many a slice has\n"
             "  int64 is_whole;                        // the one slice is the result\n"
             "  int64 pass, splits, pieces_of_split;   // of rows that several blocks share\n"
             "  char* numbers;                         // that these blocks made of the row\n"
             "  int64 kept_bytes, kept_sums;           // of shared memory, for a row; sums of columns that wait there\n"
             "  uint64 adds;                           // to what is there: results, a bit each\n"
             "}};\n\n",
             tensors, tensors, std::max<size_t>(stores, 1), std::max<size_t>(stores, 1));
}

std::string entry(std::string_view name, int threads, const std::string& call) {
  return format("extern \"C\" __global__ void __launch_bounds__({}) {}(const Rows arguments) {{ {}(arguments); }}\n", threads, name, call);
}

}  // namespace

bool goes_by_segments(const Body& body) {
  const bool by_op = std::any_of(body.ops.begin(), body.ops.end(),
                                 [](const BodyOp& op) { return op.reduces(Over::Segment) || op.reduces(Over::Segments); });
  return by_op ||
         std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) { return store.extent == Extent::Channels; });
}

bool needs_whole_rows(const Body& body) {
  const bool by_op = std::any_of(body.ops.begin(), body.ops.end(), [](const BodyOp& op) { return op.reduces_row(); });
  return by_op || std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) { return store.extent == Extent::Row; });
}

bool has_results_over_rows(const Body& body) {
  return std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) { return store.is_over_rows(); });
}

bool may_split_rows(const Body& body) { return needs_whole_rows(body) && !goes_by_segments(body) && !has_results_over_rows(body); }

Entries entries_of_rows(const Body& body) {
  using enum Entry;
  Entries entries = {Rows, RowsEach, RowsLong, RowsLongEach};
  if (may_split_rows(body)) entries.add({RowsSplit, RowsSplitEach});
  if (!widths_kept(body).empty()) entries.add({RowsShared, RowsSharedEach});
  if (goes_by_segments(body)) {
    entries = {Segments, SegmentsEach};
    if (!widths_kept(body).empty()) entries.add({SegmentsShared, SegmentsSharedEach});
  }
  if (has_results_over_rows(body)) entries.add({Merge});
  return entries;
}

Entries first_entries_of_rows(const Body& body) {
  using enum Entry;
  Entries entries = {Rows, RowsLongEach};
  if (goes_by_segments(body)) entries = {Segments, SegmentsEach};
  if (has_results_over_rows(body)) entries.add({Merge});
  return entries;
}

std::string rows_source(const Body& body, Entries entries) {
  using enum Entry;
  const int length = vector_length(body), items = items_in_flight(body), one_by_one = elements_one_by_one(body);
  // Sums over rows are in memory, and are read and written for each piece; with many loads there are no registers for two pieces.
  const int of_long = has_results_over_rows(body) || items < 4 ? 1 : 2;
  std::string text = head_of_text() + rows_struct(body);
  if (!widths_kept(body).empty()) text += "extern __shared__ __align__(16) char smem[];  // what rows keep from pass to pass\n\n";
  const auto add_function = [&](Entries of, RowForm form) {
    if (entries.has_one_of(of)) text += row_function(body, form);
  };
  const auto add = [&](Entry which, const std::string& call) {
    if (entries.has(which)) text += entry(name_of(which), most_threads_of_row(body), call);
  };
  add_function({Segments, SegmentsEach, SegmentsShared, SegmentsSharedEach}, RowForm::Segments);
  add_function({Rows, RowsEach}, RowForm::InRegisters);
  add_function({RowsShared, RowsSharedEach, RowsLong, RowsLongEach}, RowForm::Long);
  add_function({RowsSplit, RowsSplitEach}, RowForm::Split);
  add(Segments, format("run_segments<{}, false>", length));
  add(SegmentsEach, "run_segments<1, false>");
  add(SegmentsShared, format("run_segments<{}, true>", length));
  add(SegmentsSharedEach, "run_segments<1, true>");
  // The common case, without segments and with one loop over rows, has its own instance, where a row's address takes fewer instructions.
  add(Rows, format("arguments.segments == 1 && arguments.loops == 1 ? run_rows<{}, {}, true>(arguments) : run_rows<{}, {}, false>", length,
                   items, length, items));
  add(RowsEach, format("run_rows<1, {}, false>", one_by_one));
  add(RowsShared, format("run_rows_long<{}, {}, true>", length, of_long));
  add(RowsSharedEach, format("run_rows_long<1, {}, true>", one_by_one));
  add(RowsLong, format("run_rows_long<{}, {}, false>", length, of_long));
  add(RowsLongEach, format("run_rows_long<1, {}, false>", one_by_one));
  add(RowsSplit, format("run_rows_split<{}>", length));
  add(RowsSplitEach, "run_rows_split<1>");
  return entries.has(Merge) ? text + "\n" + merge_source(body) : text;
}

}  // namespace hindcast::codegen::cuda
