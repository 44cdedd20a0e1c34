#pragma once
// Launch configurations: which of a text's entry points is launched, with what grid and block. Inputs are plain numbers, so that the choice
// for a shape can be tested in isolation (tests/codegen/cuda/launch_config_test.cpp).

#include "codegen/cuda/entry.h"
#include "codegen/cuda/machine.h"
#include "codegen/device/indexing.h"

#include <array>
#include <cstdint>

namespace hindcast::codegen::cuda {

struct LaunchConfig {
  Entry entry = Entry::Dense;
  Dim grid, block;
  bool operator==(const LaunchConfig&) const = default;
};

/// Registers per thread, by entry point; 0 if unknown.
using Registers = std::array<int, kEntries>;

/// The parameters with which a body's text was generated (source.h).
struct Shape {
  int vector_length = 1;        // elements
  int elements_of_thread = 1;   // elements in flight per thread
  int items_of_nest = 1;        // largest number of vectors per thread of Entry::Nest
  int elements_one_by_one = 1;  // elements in flight per thread, if they are not aligned
  int most_threads_of_row = device::kMostThreadsOfRow;
};

/// For `numel` >= 1 elements with the same dense layout in all tensors. `is_aligned`: all addresses are multiples of 16 bytes.
LaunchConfig dense_config(int64_t numel, bool is_aligned, Shape shape, const Limits& limits);
/// The same with Entry::DenseFew, which works for any number of aligned elements.
LaunchConfig dense_few_config(int64_t numel, Shape shape);

/// The number of blocks of Entry::Sets or Entry::SetsEach for one set of tensors.
int64_t blocks_of_set(int64_t numel, bool is_aligned, Shape shape);

struct NestProblem {
  int64_t outer = 1;             // product of the sizes of all loops but the innermost
  int64_t inner = 1;             // size of the innermost loop
  bool goes_by_vectors = false;  // every tensor is dense or broadcast in the innermost loop, and aligned in all loops
  int64_t next = 1;              // size of the loop around the innermost
};
/// Vectors per thread of Entry::Nest: adjacent iterations of the loop around the innermost.
int64_t nest_items(const NestProblem& problem, Shape shape, const Limits& limits);
LaunchConfig nest_config(const NestProblem& problem, Shape shape, const Limits& limits);
/// With Entry::NestAny, which works for any nest, dense tensors included.
LaunchConfig nest_any_config(int64_t numel, Shape shape);

struct RowProblem {
  int64_t rows = 0, segments = 1, columns = 1;  // columns: in a segment
  bool is_aligned = false;                      // rows and segments begin at multiples of 16 bytes, and consist of whole vectors
  bool needs_whole_rows = false;
  bool has_results_over_rows = false;
  bool may_be_split = false;  // several blocks may share a row
  bool goes_by_segments = false;
  int64_t kept_bytes = 0;    // shared memory for what several passes over a row read; 0 if there is nothing to keep
  int64_t sums = 0;          // number of sums of columns, which may be kept in shared memory too
  int64_t sum_bytes = 0;     // bytes of one such sum, for all columns
  Registers registers = {};  // of the compiled kernel
};

struct RowLaunchConfig {
  LaunchConfig rows;
  /// Results over rows: number of slices that `merge_slices` combines; 0 if there is nothing to merge.
  int64_t slices = 0;
  int64_t rows_at_once = 1;  // in a slice
  int64_t splits = 0;        // blocks that share a row; 0: one block per row
  int64_t shared_bytes = 0;  // per block, for the rows that it processes at a time, and for the sums
  int64_t kept_sums = 0;     // number of sums of columns that are kept in shared memory
  bool operator==(const RowLaunchConfig&) const = default;
};
RowLaunchConfig row_config(const RowProblem& problem, Shape shape, const Limits& limits);
/// With the entry points that are compiled first and work for any rows: Entry::RowsLongEach; Entry::Segments or Entry::SegmentsEach.
RowLaunchConfig any_row_config(RowProblem problem, Shape shape, const Limits& limits);

/// `count`: the largest number of results of a store. `stores`: the number of stores over rows.
LaunchConfig merge_config(int64_t count, int64_t stores);

}  // namespace hindcast::codegen::cuda
