#pragma once
// Writes the loop over contiguous elements, with pointers p0, p1, ... to loads and r0, r1, ... to results.

#include "codegen/fuse/body.h"

#include <string>
#include <string_view>
#include <vector>

namespace hindcast::codegen::cpu {

/// Lines that read those of `loads` that are dense, at index `place`.
std::string load_lines(const Body& body, const std::vector<bool>& loads, std::string_view place, std::string_view indent);
/// Lines that compute `ops`. `near`: their angles were found to be near 0.
std::string op_lines(const Body& body, const std::vector<bool>& ops, bool near, std::string_view indent);
/// The loop. Each element is read before it is written, since a result may have the memory of an operand. `look`: lines at the start of the
/// loop's body, before any write. `leaves`: results are also written to leaves.
std::string dense_loop(const Body& body, std::string_view begin, std::string_view end, bool near, bool leaves,
                       const std::string& look = "");

}  // namespace hindcast::codegen::cpu
