#pragma once

#include "codegen/plan/plan.h"

#include <memory>

namespace hindcast::codegen {

/// Makes a view without the dispatcher; null for an op that is none of those known here. `otherwise` runs where the tensor is
/// no plain strided one.
std::unique_ptr<const OpCall> make_view_call(const Step& step, std::unique_ptr<const OpCall>& otherwise);

}  // namespace hindcast::codegen
