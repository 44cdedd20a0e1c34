#pragma once
// The text of a CPU kernel: a body as a struct, and functions that instantiate a skeleton over it (codegen/device/skeletons/cpu). For a
// body without rows
//
//   dense     one loop, to be vectorised (dense.h): every load is dense or broadcast, as it was at capture. If a load has another layout,
//             the caller copies tiles of it (loop_nest.h).
//   leaves    as dense; results are also written to leaves, each added to a term of its own
//
// for one with a product
//
//   dense     the product is one more load, after the stores
//   product   the kernel computes the product itself (product.h)
//
// for one by rows
//
//   rows      row by row, with as many passes over a row's columns as its reductions depend on each other (rows.h); rows of a few elements
//             in vectors of rows, if the body has a part for them (short_rows.h)
//   leaves    as rows, always row by row; results are also written to leaves
//
// The caller iterates over the outer dims.

#include "codegen/device/cpu_arguments.h"
#include "codegen/fuse/body.h"

#include <string>
#include <string_view>

namespace hindcast::codegen::cpu {

using DenseKernel = void(const device::LoopArguments& arguments);
using LeavesKernel = void(const device::LeavesArguments& arguments);
using device::kBlockLength;
/// To stores of extent Columns and Channels the kernel adds, in the compute type. `kept`: row_scratch() * segments * columns elements of
/// that type, preceded, if the body has_moments_over_rows(), by a long: how many rows those stores contain so far.
using RowsKernel = void(const device::RowLoopArguments& arguments);
/// Bytes of a packed panel per element of the depth: two of the widest vectors.
inline constexpr long kPanelBytes = 128;
using ProductKernel = void(const device::ProductArguments& arguments);

/// All includes that a kernel's text may have.
inline constexpr std::string_view kIncludesOfKernels =
    "#include \"codegen/device/skeletons/cpu/product.h\"\n"
    "#include \"codegen/device/skeletons/cpu/short_rows.h\"\n";

/// The text of `blocks`, which all kernels with a product of this type call.
std::string product_blocks_source(at::ScalarType type);
/// The kernel's text. It has the function `leaves` if the body has_leaves() (codegen/kernel/leaf_requests.h).
std::string source_of(const Body& body);

/// Whether a body by rows has a part for rows of fewer than kShortRow elements, such as the scores of a policy with few actions. A loop
/// over the elements of each row would have more overhead than work, and its vectors would be nearly empty.
bool has_part_for_short_rows(const Body& body);
/// Number of values per element of a row that are kept for a later pass.
size_t row_scratch(const Body& body);
/// Whether the store has one value per element and is written in the last pass over a row, so that it may reuse the memory of a load.
bool is_written_last(const Body& body, size_t store);

}  // namespace hindcast::codegen::cpu
