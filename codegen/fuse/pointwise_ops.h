#pragma once
// ATen ops that are one expression per element, as expressions of the device library's functors.

#include "capture/graph.h"
#include "codegen/fuse/body.h"

#include <functional>
#include <optional>

namespace hindcast::codegen {

/// Writes ops into a body. What a group's builder does with repeated loads and scalars is its own affair.
class BodyBuilder {
 public:
  virtual ~BodyBuilder() = default;
  virtual Operand tensor(const capture::Arg& arg) = 0;
  virtual Operand scalar(const capture::Arg& arg) = 0;  // a Scalar, float or int argument
  virtual Operand number(double value) = 0;
  virtual Operand op(std::string_view function, std::vector<Operand> args) = 0;
};

struct PointwiseOp {
  /// Tensor arguments that may be bool (masks); all others have the type of the result.
  uint32_t mask_args = 0;    // bit i: argument i
  uint32_t may_be_none = 0;  // arguments
  /// sin, cos, tan: the functor's angle reduction costs more than ATen's, and for double ends at 2^30.
  bool reduces_angles = false;
  /// False when these arguments ask for something that the expression is not.
  std::function<bool(const std::vector<capture::Arg>&)> accepts;  // empty: always
  std::function<Operand(BodyBuilder&, const std::vector<capture::Arg>&)> build;
};

/// Null for any other op.
const PointwiseOp* find_pointwise_op(const c10::OperatorHandle& op);

}  // namespace hindcast::codegen
