#pragma once
// The text of the kernels of a body by rows. blockDim.x threads share a row, and a block has blockDim.y rows at a time. A block goes on
// to further rows, as far as the grid leaves some for it.
//
//   rows        a row, or a tile of columns, stays in registers: memory is read once. Accesses of 16 bytes
//   rows_each   as rows, element by element: for rows that are not aligned
//   rows_shared   longer rows: what several passes read waits in shared memory, and so do sums of columns. Accesses of 16 bytes
//   rows_shared_each
//   rows_long   rows that have no room there: each pass reads the row again. Accesses of 16 bytes
//   rows_long_each   the same element by element; and in the place of each of these while it is not compiled
//   rows_split  a few long rows, each shared by several blocks: a launch for each pass, and one for the numbers of the row
//   rows_split_each
//
// where a row has segments that stay apart, in place of these:
//
//   segments, segments_each   segment by segment; each pass reads the row again; and in the place of these while they are not compiled:
//   segments_shared, segments_shared_each   what several passes read waits in shared memory
//
// Results over rows (Extent::Columns, Channels) are made in slices. A slice is what one block has of the rows, or, of rows_long and segments, what
// one row of its threads has. `merge_slices` makes one of the slices, always in the same order.

#include "codegen/cuda/entry.h"
#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

/// The body's rows go segment by segment.
bool goes_by_segments(const Body& body);
/// Something of the row is needed before its elements' results are known: a row belongs to one block as a whole.
bool needs_whole_rows(const Body& body);
bool has_results_over_rows(const Body& body);
/// Several blocks may share a row.
bool may_split_rows(const Body& body);

/// As source.h has them for all bodies.
Entries entries_of_rows(const Body& body);
Entries first_entries_of_rows(const Body& body);
std::string rows_source(const Body& body, Entries entries);

}  // namespace hindcast::codegen::cuda
