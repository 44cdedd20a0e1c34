#include "codegen/cuda/row_source.h"

#include "base/format.h"
#include "codegen/cuda/cost_model.h"
#include "codegen/cuda/entry_text.h"
#include "codegen/cuda/online_softmax.h"
#include "codegen/cuda/source.h"
#include "codegen/fuse/functors.h"
#include "codegen/fuse/row_passes.h"
#include "codegen/kernel/body_struct.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

using base::format;
using Over = Reduction::Over;

// A later pass recomputes values, from registers or from cached memory. If the row is in registers, expensive values are kept there.
bool is_cheap(const BodyOp&) { return true; }
bool is_cheap_in_registers(const BodyOp& op) { return op.kind == BodyOp::Kind::OneHot || codegen::is_cheap(op.function); }

std::string struct_in_registers(const Body& body) {
  return body_struct(body, "BodyInRegisters", {.costs = cost_model(), .is_cheap = is_cheap_in_registers});
}
// A row in registers is available for each reduction; other rows are read again, so that one pass fewer pays.
std::string struct_in_memory(const Body& body) {
  return body_struct(with_online_softmax(body), "BodyInMemory", {.costs = cost_model(), .is_cheap = is_cheap});
}
std::string struct_by_segments(const Body& body) {
  return body_struct(with_online_softmax(body), "BodyBySegments", {.costs = cost_model(), .is_cheap = is_cheap, .by_segments = true});
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
  const bool by_segments = entries.has_one_of({Segments, SegmentsEach, SegmentsShared, SegmentsSharedEach}),
             in_memory = entries.has_one_of({RowsShared, RowsSharedEach, RowsLong, RowsLongEach, RowsSplit, RowsSplitEach}),
             in_registers = entries.has_one_of({Rows, RowsEach}) || (!by_segments && !in_memory);
  std::vector<std::string_view> skeletons;
  std::string structs, entry_points;
  const auto add_struct = [&](bool is_used, std::string_view skeleton, std::string (*write)(const Body&)) {
    if (!is_used) return;
    skeletons.push_back(skeleton);
    structs += write(body);
  };
  add_struct(by_segments, "segments", struct_by_segments);
  add_struct(in_registers, "rows_in_registers", struct_in_registers);
  add_struct(in_memory, "rows_in_memory", struct_in_memory);
  const auto add = [&](Entry which, std::string_view of, const std::string& call) {
    if (entries.has(which))
      entry_points += entry_point(name_of(which), format("Rows<{}>", of), std::to_string(most_threads_of_row(body)), call);
  };
  const auto by_segment = [](int vector, bool keeps) { return format("run_segments<BodyBySegments, {}, {}>(arguments)", vector, keeps); };
  add(Segments, "BodyBySegments", by_segment(length, false));
  add(SegmentsEach, "BodyBySegments", by_segment(1, false));
  add(SegmentsShared, "BodyBySegments", by_segment(length, true));
  add(SegmentsSharedEach, "BodyBySegments", by_segment(1, true));
  // The common case, without segments and with one loop over rows, has its own instance, where a row's address takes fewer instructions.
  const auto rows = [](int vector, int count, bool flat) {
    return format("run_rows<BodyInRegisters, {}, {}, {}>(arguments)", vector, count, flat);
  };
  add(Rows, "BodyInRegisters",
      format("arguments.segments == 1 && arguments.loops == 1 ? {} : {}", rows(length, items, true), rows(length, items, false)));
  add(RowsEach, "BodyInRegisters", rows(1, one_by_one, false));
  const auto long_rows = [](int vector, int count, bool keeps) {
    return format("run_rows_long<BodyInMemory, {}, {}, {}>(arguments)", vector, count, keeps);
  };
  add(RowsShared, "BodyInMemory", long_rows(length, of_long, true));
  add(RowsSharedEach, "BodyInMemory", long_rows(1, one_by_one, true));
  add(RowsLong, "BodyInMemory", long_rows(length, of_long, false));
  add(RowsLongEach, "BodyInMemory", long_rows(1, one_by_one, false));
  add(RowsSplit, "BodyInMemory", format("run_rows_split<BodyInMemory, {}>(arguments)", length));
  add(RowsSplitEach, "BodyInMemory", "run_rows_split<BodyInMemory, 1>(arguments)");
  if (entries.has(Merge)) {
    const std::string_view of = by_segments ? "BodyBySegments" : in_registers ? "BodyInRegisters" : "BodyInMemory";
    skeletons.push_back("merge");
    entry_points += entry_point(name_of(Merge), format("Merge<{}>", of), "kThreads", format("run_merge<{}>(arguments)", of));
  }
  return head_of_text(skeletons) + structs + entry_points;
}

std::vector<int64_t> widths_kept(const Body& body) {
  const Body in_memory = with_online_softmax(body);
  const RowPasses passes(in_memory, is_cheap);
  std::vector<int64_t> widths;
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (passes.is_read_again(i)) widths.push_back(static_cast<int64_t>(c10::elementSize(body.loads[i].type)));
  }
  return widths;
}

size_t numbers_of_split_row(const Body& body) {
  const Body in_memory = with_online_softmax(body);
  return static_cast<size_t>(std::count_if(in_memory.ops.begin(), in_memory.ops.end(), [](const BodyOp& op) { return op.reduces_row(); }));
}

size_t passes_over_row(const Body& body) { return RowPasses(with_online_softmax(body), is_cheap).count(); }

size_t values_kept_in_registers(const Body& body) { return body.by_rows ? RowPasses(body, is_cheap_in_registers).slots() : 0; }

}  // namespace hindcast::codegen::cuda
