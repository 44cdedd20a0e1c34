#pragma once

#include "codegen/kernel/call_frame.h"

namespace hindcast::codegen::cpu {

/// Memory comes from the recycler. Results over all rows are made in the type of the arithmetic.
const ResultMaker& result_maker();

}  // namespace hindcast::codegen::cpu
