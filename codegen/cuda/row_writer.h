#pragma once
// The functions of a row kernel's text, one for each way to go over the rows (row_source.h).

#include "codegen/fuse/body.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::codegen::cuda {

enum class RowForm : uint8_t { InRegisters, Long, Split, Segments };

/// `template <...> void run_rows(const Rows& arguments)`, and so on: run_rows_long, run_rows_split, run_segments. Those of `kKeeps` hold what
/// several passes read in shared memory.
std::string row_function(const Body& body, RowForm form);

/// Of the loads that several passes read, and that shared memory may hold in the meantime: the bytes of an element.
std::vector<int64_t> widths_kept(const Body& body);

/// How many numbers of kNumberBytes the blocks that share a row leave each other.
size_t numbers_of_split_row(const Body& body);

/// Times that a row is gone over which registers do not hold.
size_t passes_over_row(const Body& body);

/// Of an element of a row that registers hold: the computed values that a later pass reads, each of `body.compute`'s type.
size_t values_kept_in_registers(const Body& body);

}  // namespace hindcast::codegen::cuda
