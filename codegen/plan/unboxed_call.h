#pragma once

#include "codegen/plan/plan.h"

namespace hindcast::codegen {

/// An unboxed call, for an op that returns one tensor and has one of the common signatures; otherwise nullptr.
std::unique_ptr<const OpCall> make_unboxed_call(const Step& step);

}  // namespace hindcast::codegen
