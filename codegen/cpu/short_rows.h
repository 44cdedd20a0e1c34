#pragma once
// The part of a row kernel for rows of a few elements, such as the scores of a policy with few actions: the lanes of vectors are rows. A
// loop over the elements of each row would have more overhead than work, and its vectors would be nearly empty.

#include "codegen/fuse/body.h"
#include "codegen/fuse/row_passes.h"

#include <string>

namespace hindcast::codegen::cpu {

/// Whether the body has this part: if its rows were short at capture, and it does nothing that needs a whole row at once.
bool has_part_for_short_rows(const Body& body);

/// The text of `void short_rows(pointers, scalars, rows, row_strides, columns)`: as a RowsKernel (source.h), for rows of one segment and
/// fewer than kShortRow columns.
std::string short_rows_source(const Body& body, const RowPasses& passes);

}  // namespace hindcast::codegen::cpu
