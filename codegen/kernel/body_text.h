#pragma once
// Pieces of source text that the kernels of all backends share.

#include "codegen/fuse/body.h"

#include <string>
#include <string_view>

namespace hindcast::codegen {

/// The type's name in the device library.
std::string_view type_name(at::ScalarType type);
/// x0, s0, v0, product: loads, scalars, results of ops, the product's element.
std::string name_of(Operand operand);
/// `mul<float>(x0, s0)`, for a functor. `form`: of a sin, cos or tan (angles.h).
std::string call_of(const Body& body, size_t op, std::string_view form = "");
/// The value of a OneHot in column `column`, an expression. `type`: the compute type.
std::string one_hot_of(const BodyOp& op, std::string_view column, std::string_view type);
/// The type of a load's variable: float for 16-bit floats.
std::string_view type_of_load(const Body& body, size_t load);
/// The expression that reads a load from the lvalue `place`.
std::string load_from(const Body& body, size_t load, const std::string& place);
std::string converted(const Body& body, const BodyStore& store);

}  // namespace hindcast::codegen
