#pragma once
// The text of the kernels of a body by rows. blockDim.x threads share a row, and a block processes blockDim.y rows at a time, looping over
// further rows if the grid is smaller than the number of rows.
//
//   rows        a row, or a tile of columns, stays in registers: memory is read once. Accesses of 16 bytes
//   rows_each   as rows, element by element: for rows that are not aligned
//   rows_shared   longer rows: what several passes read is kept in shared memory, and so are sums of columns. Accesses of 16 bytes
//   rows_shared_each   as rows_shared, element by element
//   rows_long   rows too long for shared memory: each pass reads the row again. Accesses of 16 bytes
//   rows_long_each   as rows_long, element by element; the substitute for all of these while they are not compiled
//   rows_split  a few long rows, each shared by several blocks: one launch per pass, and one for the numbers of the row
//   rows_split_each   as rows_split, element by element
//
// If a row has segments that must be processed separately, instead of these:
//
//   segments, segments_each   segment by segment; each pass reads the row again; the substitutes while these are not compiled:
//   segments_shared, segments_shared_each   what several passes read is kept in shared memory
//
// Results over rows (Extent::Columns, Channels) are computed in slices: a slice covers the rows of one block or, for rows_long and
// segments, of one threadIdx.y of a block. `merge_slices` combines the slices, always in the same order.

#include "codegen/cuda/entry.h"
#include "codegen/fuse/body.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::codegen::cuda {

/// Whether the body's rows are processed segment by segment.
bool goes_by_segments(const Body& body);
/// Whether elements depend on a reduction over their row, so that one block must process a whole row.
bool needs_whole_rows(const Body& body);
bool has_results_over_rows(const Body& body);
/// Whether several blocks may share a row.
bool may_split_rows(const Body& body);

/// As the functions in source.h, for row kernels.
Entries entries_of_rows(const Body& body);
Entries first_entries_of_rows(const Body& body);
std::string rows_source(const Body& body, Entries entries);

/// Bytes of an element, for each load that several passes read and that may be kept in shared memory.
std::vector<int64_t> widths_kept(const Body& body);

/// How many numbers of kNumberBytes the blocks that share a row exchange.
size_t numbers_of_split_row(const Body& body);

/// Number of passes over a row that is not kept in registers.
size_t passes_over_row(const Body& body);

/// For rows kept in registers: the number of computed values per element that a later pass reads, each of type `body.compute`.
size_t values_kept_in_registers(const Body& body);

}  // namespace hindcast::codegen::cuda
