#pragma once
// ATen ops that are one expression per element, as expressions of the device library's functors: the rows of base/pointwise_ops.def.

#include "codegen/fuse/member.h"

#include <functional>
#include <vector>

namespace hindcast::codegen {

struct PointwiseOp {
  /// Tensor arguments that may be bool (masks); all others are numbers.
  uint32_t mask_args = 0;    // bit i: argument i
  uint32_t may_be_none = 0;  // arguments
  uint32_t counters = 0;     // arguments that are integers and stay such: no arithmetic of T is done with them
  bool gives_mask = false;   // its result is bool; inside of a kernel, as all else there, a number: 1 or 0
  /// False when these arguments ask for something that the expression is not.
  std::function<bool(const std::vector<capture::Arg>&)> accepts;  // empty: always
  std::function<Operand(BodyBuilder&, const std::vector<capture::Arg>&)> build;
};

/// Null for any other op.
const PointwiseOp* find_pointwise_op(const c10::OperatorName& name);

/// Of ops with a complex operand. Null for any other: those whose special values are C's library's, such as exp, and those that make
/// real numbers of complex ones.
const PointwiseOp* find_complex_op(const c10::OperatorName& name);

}  // namespace hindcast::codegen
