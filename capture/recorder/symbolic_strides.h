#pragma once
// Strides of stand-ins in terms of symbolic sizes.

#include <c10/core/SymInt.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace hindcast::capture {

/// For a tensor that is dense up to order and stride-0 dimensions; empty for any other. `sizes_now` and `strides`: as in the trace. Which
/// dimensions have size 1 affects the order, so relations fix it.
std::vector<c10::SymInt> symbolic_strides(c10::IntArrayRef sizes_now, c10::IntArrayRef strides, const std::vector<c10::SymInt>& sizes);

}  // namespace hindcast::capture
