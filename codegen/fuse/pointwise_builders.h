#pragma once
// Builders that turn an ATen op into an expression of functors: the second column of HC_ATEN in base/pointwise_ops.def. Each is passed the
// functor of its row.

#include "codegen/fuse/functors.h"
#include "codegen/fuse/pointwise_ops.h"

namespace hindcast::codegen::builders {

/// functor(args[0], args[1], ...), with as many arguments as it takes.
PointwiseOp as_is(const Functor& functor);
/// The same; all numbers are rounded (PointwiseOp::rounded).
PointwiseOp of_rounded(const Functor& functor);
/// (self, threshold, value)
PointwiseOp threshold(const Functor& functor);
/// functor(args[0], args[1], ...); all arguments may be bools.
PointwiseOp of_masks(const Functor& functor);
/// The same; the first may be a bool.
PointwiseOp by_mask(const Functor& functor);
/// (self, mask, value)
PointwiseOp masked_fill(const Functor& functor);
/// (self, other, alpha)
PointwiseOp with_alpha(const Functor& functor);
/// (self, number, alpha)
PointwiseOp number_with_alpha(const Functor& functor);
PointwiseOp reversed_with_alpha(const Functor& functor);
/// (self, tensor1, tensor2, value)
PointwiseOp add_multiple(const Functor& functor);
PointwiseOp add_quotient(const Functor& functor);
/// (self, min or None, max or None)
PointwiseOp clamp_to_given(const Functor& functor);
/// (..., eps or None)
PointwiseOp with_optional_eps(const Functor& functor);
/// (..., approximate): the functor, or its form by tanh.
PointwiseOp gelu(const Functor& functor);
/// (self, exponent): the functor, or a cheaper expression for a common exponent.
PointwiseOp power(const Functor& functor);
/// (self, alpha)
PointwiseOp celu(const Functor& functor);
/// (grad, alpha, scale, input_scale, is_result, self or result)
PointwiseOp elu_backward(const Functor& functor);
/// (grad, mask, scale)
PointwiseOp dropout_backward(const Functor& functor);
/// (seed, rows, columns, p, value, dtype)
PointwiseOp bernoulli(const Functor& functor);
PointwiseOp philox_dropout(const Functor& functor);
/// (grad, self, target, reduction, scalars...)
PointwiseOp loss_backward(const Functor& functor);
/// The same for a squared loss, whose derivative has a factor of 2.
PointwiseOp squared_loss_backward(const Functor& functor);
/// (grad, self, target, weight or None, reduction)
PointwiseOp weighted_loss_backward(const Functor& functor);

// -- complex numbers
/// (self, other, alpha)
PointwiseOp complex_add(const Functor& functor);
PointwiseOp complex_sub(const Functor& functor);
PointwiseOp complex_rsub(const Functor& functor);
/// (self, exponent): the powers that ATen computes as products.
PointwiseOp complex_power(const Functor& functor);

}  // namespace hindcast::codegen::builders
