#pragma once

#include "codegen/plan/plan.h"

namespace hindcast::codegen {

/// A call without boxing, for an op that returns one tensor and whose signature is among the common ones; else null.
std::unique_ptr<const OpCall> make_unboxed_call(const Step& step);

}  // namespace hindcast::codegen
