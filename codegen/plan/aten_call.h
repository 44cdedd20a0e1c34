#pragma once

#include "codegen/plan/plan.h"

#include <memory>

namespace hindcast::codegen {

/// Runs a group's members one by one through ATen, as if they had not been fused.
std::unique_ptr<const OpCall> make_aten_call(const Group& group, std::shared_ptr<const capture::Graph> graph);

}  // namespace hindcast::codegen
