#pragma once
// Pieces of source text that the kernels of all backends share.

#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"

#include <string>
#include <string_view>

namespace hindcast::codegen {

/// The type's name in the device library.
std::string_view type_name(at::ScalarType type);
/// x0, s0, v0, product[i]: loads, scalars, results of ops, the product's element.
std::string name_of(Operand operand);
/// `mul<float>(x0, s0)`, for a functor. `form`: of a sin, cos or tan (angles.h).
std::string call_of(const Body& body, size_t op, std::string_view form = "");
/// `v0 = mul<float>(x0, s0)`, for a functor. `near`: its angle was found to be near (angles.h).
std::string assignment(const Body& body, size_t op, const CostModel& costs, bool near = false);
/// The value of a OneHot in column `column`, an expression. `type`: the compute type.
std::string one_hot_of(const BodyOp& op, std::string_view column, std::string_view type);
/// The head of a loop by blocks: each has the elements from `begin` to `end`, at most `length`.
std::string block_lines(const std::string& indent, const std::string& count, long length);
/// The type of a load's variable: float for 16-bit floats.
std::string_view type_of_load(const Body& body, size_t load);
/// The expression that reads a load from the lvalue `place`.
std::string load_from(const Body& body, size_t load, const std::string& place);
std::string converted(const Body& body, const BodyStore& store);
/// The lines that store element i; with `leaves`, also those that store it to its leaves, numbered from `first_leaf`.
std::string store_lines(const Body& body, size_t store, size_t first_leaf, bool leaves, const std::string& indent);
/// `const float s0 = (float)scalars[0];` for each scalar.
std::string scalar_lines(const Body& body);

}  // namespace hindcast::codegen
