#pragma once
// The functions of a row kernel's text, one for each way to go over the rows (row_source.h).

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

enum class RowForm : uint8_t { InRegisters, Long, Split, Segments };

/// `template <...> void run_rows(const Rows& arguments)`, and so on: run_rows_long, run_rows_split, run_segments.
std::string row_function(const Body& body, RowForm form);

/// Times that a row is gone over.
size_t passes_over_row(const Body& body);
/// The store is one of elements in the last pass over a row: it may lie where a load did.
bool is_written_last(const Body& body, size_t store);

}  // namespace hindcast::codegen::cuda
