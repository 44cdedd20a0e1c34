#pragma once

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

/// The text of the kernel `merge_slices`, for a body with results over rows (row_source.h): a block merges kTile results of one store over
/// all slices. The grid is (largest number of results of a store / kTile, stores over rows).
std::string merge_source(const Body& body);

}  // namespace hindcast::codegen::cuda
