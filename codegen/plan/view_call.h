#pragma once

#include "codegen/plan/plan.h"

#include <memory>

namespace hindcast::codegen {

/// Makes a view without the dispatcher; nullptr if the op is not one of the view ops known here. `otherwise` runs when the tensor is not a
/// plain strided one.
std::unique_ptr<const OpCall> make_view_call(const Step& step, std::unique_ptr<const OpCall>& otherwise);

}  // namespace hindcast::codegen
