#pragma once
// Pointwise ATen ops as expressions of the device library's functors: the rows of base/pointwise_ops.def.

#include "codegen/fuse/member.h"

#include <functional>
#include <vector>

namespace hindcast::codegen {

struct PointwiseOp {
  // Bit masks: bit i for argument i.
  uint32_t mask_args = 0;    // tensor arguments that may be bool (masks); all others are numbers
  uint32_t may_be_none = 0;  // arguments that may be None
  uint32_t counters = 0;     // integer arguments that are not converted to the compute type
  uint32_t rounded = 0;      // numbers that ATen rounds to the result's (a mask: the operands') type if that has 16 bits; on the CPU only
  bool gives_mask = false;   // the result is bool; inside a kernel it is a number like all other values: 1 or 0
  /// False if the expression is not right for these arguments.
  std::function<bool(const std::vector<capture::Arg>&)> accepts;                             // empty: always
  std::function<bool(const std::vector<capture::Arg>&, at::ScalarType)> accepts_in_16_bits;  // the same, for results of 16 bits on the CPU
  std::function<Operand(BodyBuilder&, const std::vector<capture::Arg>&)> build;
};

/// nullptr for any other op.
const PointwiseOp* find_pointwise_op(const c10::OperatorName& name);

/// The same for ops with a complex operand. nullptr for ops whose special values are those of the C library, such as exp, and for ops from
/// complex to real numbers.
const PointwiseOp* find_complex_op(const c10::OperatorName& name);

}  // namespace hindcast::codegen
