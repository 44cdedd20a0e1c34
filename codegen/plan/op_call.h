#pragma once
// How one ATen instr is called on a hit: unboxed where its signature is a common one, else through LibTorch's boxed stack.

#include "codegen/plan/plan.h"

namespace hindcast::codegen {

std::unique_ptr<const OpCall> make_op_call(const Step& step);

}  // namespace hindcast::codegen
