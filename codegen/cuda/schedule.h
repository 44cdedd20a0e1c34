#pragma once
// How a kernel is launched: which of a text's entry points, how many threads, and what each has. Numbers alone come in, so that the choice
// for a shape can be tested alone (tests/cuda/schedule_test.cpp).

#include "codegen/cuda/entry.h"
#include "codegen/cuda/machine.h"
#include "codegen/device/indexing.h"

#include <array>
#include <cstdint>

namespace hindcast::codegen::cuda {

struct Schedule {
  Entry entry = Entry::Dense;
  Dim grid, block;
  bool operator==(const Schedule&) const = default;
};

/// Registers per thread, by entry point; 0 if unknown.
using Registers = std::array<int, kEntries>;

/// What a body's text was made with (source.h).
struct Shape {
  int vector_length = 1;        // elements
  int elements_of_thread = 1;   // that a thread has in flight
  int items_of_nest = 1;        // vectors per thread of Entry::Nest, at most
  int elements_one_by_one = 1;  // where they are not aligned
  int most_threads_of_row = device::kMostThreadsOfRow;
};

/// `numel` elements, at least one, that lie along. `is_aligned`: at addresses of 16 bytes.
Schedule schedule_dense(int64_t numel, bool is_aligned, Shape shape, const Limits& limits);
/// The same by Entry::DenseFew, which takes any number of aligned ones.
Schedule schedule_dense_few(int64_t numel, Shape shape);

/// Of a set of tensors: the blocks of Entry::Sets or Entry::SetsEach that work on it.
int64_t blocks_of_set(int64_t numel, bool is_aligned, Shape shape);

struct NestProblem {
  int64_t outer = 1;             // elements of all loops but the innermost, together
  int64_t inner = 1;             // of the innermost
  bool goes_by_vectors = false;  // every tensor goes along, or stands still, in the innermost loop, and is aligned in all
  int64_t next = 1;              // size of the loop around the innermost
};
/// Vectors per thread of Entry::Nest: neighbours in the loop around the innermost.
int64_t nest_items(const NestProblem& problem, Shape shape, const Limits& limits);
Schedule schedule_nest(const NestProblem& problem, Shape shape, const Limits& limits);
/// By Entry::NestAny, which takes any nest, and what lies along as well.
Schedule schedule_nest_any(int64_t numel, Shape shape);

struct RowProblem {
  int64_t rows = 0, segments = 1, columns = 1;  // columns: of a segment
  bool is_aligned = false;                      // rows and segments begin at addresses of 16 bytes, and have whole vectors
  bool needs_whole_rows = false;
  bool has_results_over_rows = false;
  bool may_be_split = false;  // several blocks may share a row
  bool goes_by_segments = false;
  int64_t kept_bytes = 0;    // of shared memory, for what several passes over a row read. 0: there is no such thing
  int64_t sums = 0;          // of columns, which may wait in shared memory beside them
  int64_t sum_bytes = 0;     // of one, for all columns
  Registers registers = {};  // of the compiled kernel
};

struct RowSchedule {
  Schedule rows;
  /// Results over rows: slices that `merge_slices` makes one of. 0: there is nothing to merge.
  int64_t slices = 0;
  int64_t rows_at_once = 1;  // of a slice
  int64_t splits = 0;        // blocks that share a row. 0: each row has one
  int64_t shared_bytes = 0;  // of a block, for the rows that it has at a time, and for the sums
  int64_t kept_sums = 0;     // of columns, that wait in shared memory
  bool operator==(const RowSchedule&) const = default;
};
RowSchedule schedule_rows(const RowProblem& problem, Shape shape, const Limits& limits);
/// By entry points that are compiled first, and take any rows: Entry::RowsLongEach; Entry::Segments or Entry::SegmentsEach.
RowSchedule schedule_any_rows(RowProblem problem, Shape shape, const Limits& limits);

/// `count`: most results of a store. `stores`: over rows.
Schedule schedule_merge(int64_t count, int64_t stores);

}  // namespace hindcast::codegen::cuda
