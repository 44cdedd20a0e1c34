#pragma once
// Writes the lines of a kernel that compute one element, and the head of its text.

#include "codegen/fuse/body.h"

#include <string>
#include <string_view>

namespace hindcast::codegen::cuda {

/// `v0 = mul<float>(x0, s0)`. sin, cos and tan have a branch for angles near 0.
std::string assignment(const Body& body, size_t op);
/// `const float s0 = ...;` for each scalar, read from `words`.
std::string scalar_lines(const Body& body, const std::string& words, const std::string& indent);
/// The type of adjacent elements of a load, `Vector<float, kVector>`, and the function that reads them.
std::string vector_type(const Body& body, size_t load, const std::string& length);
std::string_view load_function(const Body& body, size_t load);
/// Includes and declarations that all kernels of the text share.
std::string head_of_text();
/// The number of pointers: loads, stores, then two for each leaf of each store: its sum, and the term that is added to the value.
size_t pointers_of(const Body& body);
/// The first fields of the argument struct: `  char* pointers[3];`, then the scalars.
std::string argument_fields(const Body& body);

}  // namespace hindcast::codegen::cuda
