#pragma once

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

/// The kernel `merge_slices` of a body with results over rows (row_source.h): a block makes kTile of one store's results of all slices. The grid is
/// (most results of a store / kTile, stores over rows).
std::string merge_source(const Body& body);

}  // namespace hindcast::codegen::cuda
