#pragma once
// The text of a kernel that computes a matrix product, and the rest of the body while a block of the product is in the innermost cache.

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cpu {

/// In front of the text that includes the functors.
std::string product_head();
/// The text of `blocks`, which all product kernels of a type call.
std::string product_blocks_source(at::ScalarType type);
/// The function `product`, a ProductKernel.
std::string product_source(const Body& body);

}  // namespace hindcast::codegen::cpu
