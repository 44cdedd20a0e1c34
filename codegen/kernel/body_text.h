#pragma once
// Words that all kernel texts are made of.

#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"

#include <string>
#include <string_view>

namespace hindcast::codegen {

/// As the device library calls it.
std::string_view type_name(at::ScalarType type);
/// x0, s0, v0, product[i]: loads, scalars, results of ops, the product's element.
std::string name_of(Operand operand);
/// `v0 = mul<float>(x0, s0)`, for a functor. `near`: of an angle that was found to be near (angles.h).
std::string assignment(const Body& body, size_t op, const CostModel& costs, bool near = false);
/// `length` elements from `begin` to `end`, for what is done block by block.
std::string block_lines(const std::string& indent, const std::string& count, long length);
/// Of a load's variable: 16-bit floats become float.
std::string_view type_of_load(const Body& body, size_t load);
/// What reads a load from the lvalue `place`.
std::string load_from(const Body& body, size_t load, const std::string& place);
std::string converted(const Body& body, const BodyStore& store);
/// Element i of a store, `leaves`: and of the sums of its leaves, the first of which is `first_leaf`.
std::string store_lines(const Body& body, size_t store, size_t first_leaf, bool leaves, const std::string& indent);
/// `const float s0 = (float)scalars[0];` for all.
std::string scalar_lines(const Body& body);

}  // namespace hindcast::codegen
