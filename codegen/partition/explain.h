#pragma once

#include "capture/function/joint.h"

#include <string>
#include <vector>

namespace hindcast::codegen {

/// By value: what the joint's text calls it, with primals_1, ... and tangents_1, ... as the inputs. Both halves of a partition have the
/// joint's values, so the names are theirs too.
std::vector<std::string> names_of(const capture::Joint& joint);

/// What is saved and who needs it, what is computed again, and how many bytes that is beside what `standard` saves.
std::string explain(const capture::Joint& joint, const capture::Partitioned& parts);

}  // namespace hindcast::codegen
