#pragma once
// Range reduction of sin, cos and tan: functors that are right for all angles cost at least five times those for angles near 0, and nearly
// all angles are near 0. A kernel contains both forms and checks a block of angles first.

#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"

#include <c10/util/FunctionRef.h>

#include <string>
#include <vector>

namespace hindcast::codegen {

/// The values a kernel checks. Angles with a known bound, as in cos(tanh(x)), are always near and need no check.
struct Angles {
  std::vector<size_t> loads;
  std::vector<Operand> results;     // angles that the kernel computes
  std::vector<std::string> bounds;  // bounds on the size of all other angles: expressions of scalars and broadcast loads
  bool empty() const { return loads.empty() && results.empty() && bounds.empty(); }
};
/// `takes_part`: restricts the result to angles of these ops.
Angles angles_of(const Body& body, c10::function_ref<bool(size_t op)> takes_part);
Angles angles_of(const Body& body);

/// The name of the functor's form: for near angles; or for all angles, inlined or called. `near`: the kernel has checked that all are near.
std::string_view form_of(const Body& body, size_t op, bool near, const CostModel& costs);

/// The loads and ops that some operands are computed from.
struct Ingredients {
  std::vector<bool> loads, ops;
};
/// `is_computed`: false for ops whose values are available already; the search stops at them.
Ingredients ingredients_of(const Body& body, const std::vector<Operand>& operands, c10::function_ref<bool(size_t op)> is_computed);

/// The line `far |= ...;` for an angle, or for a bound of some.
std::string far_line(const Body& body, Operand angle);
std::string far_line(const Body& body, const std::string& bound);

}  // namespace hindcast::codegen
