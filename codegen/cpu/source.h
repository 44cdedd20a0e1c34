#pragma once
// The text of a CPU kernel. Two loops over one body:
//
//   dense     every load goes as it did at capture: along with the results, or standing still. What the vectoriser is for.
//   strided   every load by a stride of its own
//
// `pointers`: loads, then stores. The caller walks the outer dims.

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen {

using DenseKernel = void(char* const* pointers, const double* scalars, long count);
using StridedKernel = void(char* const* pointers, const double* scalars, long count, const long* strides);  // in bytes

std::string cpu_source(const Body& body);

}  // namespace hindcast::codegen
