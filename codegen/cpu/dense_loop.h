#pragma once
// The loop over elements that follow each other in memory: loads p0, p1, ..., results r0, r1, ...

#include "codegen/fuse/body.h"

#include <string>
#include <string_view>
#include <vector>

namespace hindcast::codegen::cpu {

/// Reads those of `loads` that are dense, at `place`.
std::string load_lines(const Body& body, const std::vector<bool>& loads, std::string_view place, std::string_view indent);
/// Computes `ops`. `near`: their angles were found to be near.
std::string op_lines(const Body& body, const std::vector<bool>& ops, bool near, std::string_view indent);
/// Where a result is written to the memory of an operand, each element is read before. `look`: lines that begin the loop's body, for which
/// the same holds. `leaves`: results also go to leaves.
std::string dense_loop(const Body& body, std::string_view begin, std::string_view end, bool near, bool leaves,
                       const std::string& look = "");

}  // namespace hindcast::codegen::cpu
