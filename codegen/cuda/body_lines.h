#pragma once
// The lines of a kernel that compute one element, and the head of its text.

#include "codegen/fuse/body.h"

#include <string>
#include <string_view>

namespace hindcast::codegen::cuda {

/// `v0 = mul<float>(x0, s0)`. A functor of angles has a branch for those near 0.
std::string assignment(const Body& body, size_t op);
/// `const float s0 = ...;` for all, from `words`.
std::string scalar_lines(const Body& body, const std::string& words, const std::string& indent);
/// Neighbouring elements of a load, `Vector<float, kVector>`, and the function that reads them.
std::string vector_type(const Body& body, size_t load, const std::string& length);
std::string_view load_function(const Body& body, size_t load);
/// Includes, and what all kernels of the text have.
std::string head_of_text();
/// Pointers to loads and stores, then two for each leaf of each store: its sum, and the term that is added to the value.
size_t pointers_of(const Body& body);
/// `  char* pointers[3];`, and the scalars.
std::string argument_fields(const Body& body);

}  // namespace hindcast::codegen::cuda
