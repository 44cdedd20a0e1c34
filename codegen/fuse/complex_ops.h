#pragma once
// ATen ops on complex numbers, as expressions of the device library's functors.

#include "codegen/fuse/pointwise_ops.h"

namespace hindcast::codegen {

/// Of ops with a complex operand. Null for any other: those whose special values are C's library's, such as exp, and those that make
/// real numbers of complex ones.
const PointwiseOp* find_complex_op(const c10::OperatorName& name);

}  // namespace hindcast::codegen
