#pragma once

#include "capture/function/joint.h"

#include <string>
#include <vector>

namespace hindcast::codegen {

/// By value: its name in the joint's text, where inputs are primals_1, ... and tangents_1, .... Both halves of a partition have the joint's
/// values, so the names apply to them too.
std::vector<std::string> names_of(const capture::Joint& joint);

/// A report: what is saved and which instrs need it, what is recomputed, and the bytes saved compared with `standard`.
std::string explain(const capture::Joint& joint, const capture::Partitioned& parts);

}  // namespace hindcast::codegen
