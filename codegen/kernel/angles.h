#pragma once
// Angles of sin, cos and tan: their functors for all angles cost five times and more what those for angles near 0 cost, as nearly all are.
// A kernel has both forms, and looks at a block of angles first.

#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"

#include <c10/util/FunctionRef.h>

#include <string>
#include <vector>

namespace hindcast::codegen {

/// What a kernel looks at. Not at angles whose size is known beforehand, as of cos(tanh(x)): these are always near.
struct Angles {
  std::vector<size_t> loads;
  std::vector<Operand> results;     // angles that the kernel computes
  std::vector<std::string> bounds;  // other angles are at most so large: expressions of scalars and still loads
  bool empty() const { return loads.empty() && results.empty() && bounds.empty(); }
};
/// `takes_part`: only those of these ops.
Angles angles_of(const Body& body, c10::function_ref<bool(size_t op)> takes_part);
Angles angles_of(const Body& body);

/// Of the functor's name: for near angles; for all, inlined or by a call. `near`: the kernel looked, and all angles are.
std::string_view form_of(const Body& body, size_t op, bool near, const CostModel& costs);

/// What operands are made of: true for those loads and ops.
struct Ingredients {
  std::vector<bool> loads, ops;
};
/// `is_computed`: of other ops the values are there.
Ingredients ingredients_of(const Body& body, const std::vector<Operand>& operands, c10::function_ref<bool(size_t op)> is_computed);

/// `far |= ...;` for an angle, by its value or by a bound.
std::string far_line(const Body& body, Operand angle, const std::string& value, const std::string& flag = "far");
std::string far_line(const Body& body, const std::string& bound, const std::string& flag = "far");

}  // namespace hindcast::codegen
