#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

#include "tests/whole/ops/expr.h"
#include "tests/whole/ops/tensors.h"

/// Turns the arguments of a row into the values that an op's schema requires.
///
/// Tensors, where sizes are integers, may use N, and f() stands for the row's dtype:
///     f(sizes)            normal, a leaf that requires grad        g0(sizes)   the same without grad
///     in(low, high, sizes) uniform leaf                            pos(sizes) = in(0.5, 2.5, sizes)   unit(sizes) = in(0.05, 0.95, sizes)
///     c(sizes)            complex leaf                             real(sizes) real leaf in a row of complex dtype
///     spd(..., n, n)      positive definite leaf
///     idx(bound, sizes)   random integers below the bound          mask(sizes), perm(n), arange(n), ints([...]), vals([...])
///     zeros(sizes)        no grad                                  ones(sizes)   no grad
/// Tensors made of other expressions:
///     aten::name.overload(arguments)#k   result k of another op    via(x)   a differentiable copy: for in-place ops
///     const(x)   without grad                                      leaf(x)   a leaf with the values of x
///     cast(int32, x)
/// Everything else: integers, reals, inf, true, false, none, undefined, cx(re, im), [lists], "texts", dtypes as `float32` or `dtype`
/// (the row's), layouts as `sparse_csr`, memory formats as `channels_last`.
namespace hindcast::tests::ops {

/// One value per argument of the schema, defaults filled in. Throws std::invalid_argument on what does not fit.
std::vector<c10::IValue> make_arguments(const c10::FunctionSchema& schema, const std::vector<Expr>& arguments, TensorMaker& maker);

/// From an op's arguments to its results; empty: through the dispatcher, like a user's call.
using OpCaller = std::function<std::vector<c10::IValue>(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments)>;

/// Calls `aten::name.overload`. Returns all its results.
std::vector<c10::IValue> call_op(const std::string& name, const std::vector<Expr>& arguments, TensorMaker& maker,
                                 const OpCaller& caller = {});

}  // namespace hindcast::tests::ops
