#pragma once
// The text of a CPU kernel. For a body without rows
//
//   dense     every load goes as it did at capture: along with the results, or standing still. What the vectoriser is for. Where a
//             load lies in another way, the caller copies tiles of it (nest.h).
//   leaves    as dense; results also go to leaves, each added to a term of its own
//
// for one with a product
//
//   dense     the product is one more load, behind the stores
//   product   the kernel makes the product itself (product_source.cpp)
//
// for one by rows (row_source.cpp)
//
//   rows      row by row; within one, as many passes over its columns as sums over the row wait for each other
//   leaves    as rows; results also to leaves
//
// `pointers`: loads, then stores. The caller walks the outer dims.

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cpu {

using DenseKernel = void(char* const* pointers, const double* scalars, long count);
/// After the stores' pointers two for each leaf of each store: the sum, and the term that is added to the value. `is_block`, by
/// pointer from the stores on: 1 where there is no tensor but kBlockLength elements, for every block of the loop.
using LeavesKernel = void(char* const* pointers, const double* scalars, long count, const long* is_block);
inline constexpr long kBlockLength = 1024;

/// A row has `segments` segments, of `columns` elements side by side each. Steps in bytes, by pointer. To stores of extent Columns and
/// Channels the kernel adds, in the type of the arithmetic. `kept`: row_scratch() * segments * columns elements of that type, and in front
/// of them, where it has_moments_over_rows(), a long: how many rows those stores hold so far. To leaves: pointers as of LeavesKernel; where
/// there is no tensor, the elements of one segment for every segment of every row, by steps of 0.
using RowsKernel = void(char* const* pointers, const double* scalars, long rows, const long* row_steps, long segments,
                        const long* segment_steps, long columns, char* kept);

/// Bytes of a panel for each element of the depth: two of the widest vectors.
inline constexpr long kPanelBytes = 128;
/// Rows [begin, end) of a product (codegen/device/products.h). `shape`: steps from one row of a and of b in memory to the next, the depth,
/// the columns. `blocks`: a ProductBlocks. Of each pointer, bytes from one row to the next. `scratch`: a panel.
using ProductKernel = void(const void* blocks, const long* shape, const void* a, const void* b, char* const* pointers,
                           const long* row_steps, const double* scalars, long begin, long end, char* scratch);

/// The text; it has the function `leaves` where the body has_leaves() (codegen/kernel/leaf_requests.h).
std::string source_of(const Body& body);

/// Values of a row that are kept from one pass to the next.
size_t row_scratch(const Body& body);
/// The store is one of elements in the last pass over a row: it may lie where a load did.
bool is_written_last(const Body& body, size_t store);

}  // namespace hindcast::codegen::cpu
