#pragma once
// The text of a kernel that computes a matrix product, and the rest of the body while a block of the product is in the L1 cache.

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cpu {

/// The head of the text, which must precede the includes of the functors.
std::string product_head();
/// The text of `blocks`, which all product kernels of this type call.
std::string product_blocks_source(at::ScalarType type);
/// The text of the function `product`, a ProductKernel.
std::string product_source(const Body& body);

}  // namespace hindcast::codegen::cpu
