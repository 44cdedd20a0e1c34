#pragma once
// Writes the functions of a row kernel's text, one for each way to process the rows (row_source.h).

#include "codegen/fuse/body.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::codegen::cuda {

enum class RowForm : uint8_t { InRegisters, Long, Split, Segments };

/// `template <...> void run_rows(const Rows& arguments)`, or run_rows_long, run_rows_split, run_segments. Instances with `kKeeps` keep what
/// several passes read in shared memory.
std::string row_function(const Body& body, RowForm form);

/// Bytes of an element, for each load that several passes read and that may be kept in shared memory.
std::vector<int64_t> widths_kept(const Body& body);

/// How many numbers of kNumberBytes the blocks that share a row exchange.
size_t numbers_of_split_row(const Body& body);

/// Number of passes over a row that is not kept in registers.
size_t passes_over_row(const Body& body);

/// For rows kept in registers: the number of computed values per element that a later pass reads, each of type `body.compute`.
size_t values_kept_in_registers(const Body& body);

}  // namespace hindcast::codegen::cuda
