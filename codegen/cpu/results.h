#pragma once

#include "codegen/kernel/call_frame.h"

namespace hindcast::codegen::cpu {

/// Allocates from the recycler. Results over rows are computed in the compute type.
const ResultMaker& result_maker();

}  // namespace hindcast::codegen::cpu
