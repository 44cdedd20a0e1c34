#include "codegen/fuse/pointwise_builders.h"

#include "codegen/fuse/random_ops.h"

#include <cmath>

namespace hindcast::codegen::builders {
namespace {

using capture::Arg;
using Args = std::vector<Arg>;

// Whether the argument is a constant equal to `value`, and so need not be an argument of the kernel.
bool is_number(const Arg& arg, double value) {
  return arg.kind == Arg::Kind::Constant && arg.constant.isScalar() && !arg.constant.toScalar().isComplex() &&
         arg.constant.toScalar().toDouble() == value;
}

bool is_nan(const Arg& arg) {
  return arg.kind == Arg::Kind::Constant && arg.constant.isDouble() && std::isnan(arg.constant.toDouble());
}

bool is_none(const Arg& arg) { return arg.kind == Arg::Kind::Constant && arg.constant.isNone(); }

// A tensor's element or a scalar, depending on the argument.
Operand operand(BodyBuilder& body, const Arg& arg) { return arg.kind == Arg::Kind::Value ? body.tensor(arg) : body.scalar(arg); }

std::vector<Operand> operands(BodyBuilder& body, const Args& args, size_t count) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < count; ++i) operands.push_back(operand(body, args[i]));
  return operands;
}

// at::Reduction: 0 none, 1 mean, 2 sum. As in ATen, the mean's divisor is the input's number of elements, also if the target has more.
Operand norm_of_loss(BodyBuilder& body, const Arg& input, const Arg& reduction, double numerator) {
  const bool is_mean = reduction.constant.toInt() == 1;
  return is_mean ? body.inverse_of(body.sizes_of(input), numerator) : body.number(numerator);
}

PointwiseOp loss(const Functor& functor, double numerator) {
  PointwiseOp op;
  op.accepts = [](const Args& args) { return args[3].kind == Arg::Kind::Constant && args[3].constant.isInt(); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < 3; ++i) operands.push_back(body.tensor(args[i]));
    operands.push_back(norm_of_loss(body, args[1], args[3], numerator));
    for (size_t i = 1; i < functor.scalars; ++i) operands.push_back(body.scalar(args[3 + i]));
    return body.op(functor, std::move(operands));
  };
  return op;
}

// args[first] + sign * alpha * args[second], with ATen's complex product even if alpha is 1.
PointwiseOp complex_with_alpha(const Functor& functor, bool subtracts, size_t first, size_t second) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = operand(body, args[first]), other = operand(body, args[second]);
    if (is_number(args[2], 1)) return body.op(functor, {self, other});
    const Operand alpha = body.scalar(args[2]);
    return body.op("add_product", {self, subtracts ? body.op("neg", {alpha}) : alpha, other});
  };
  return op;
}

}  // namespace

PointwiseOp as_is(const Functor& functor) {
  PointwiseOp op;
  op.gives_mask = functor.result == Functor::Result::BOOL;
  op.build = [=](BodyBuilder& body, const Args& args) {
    return body.op(functor, operands(body, args, functor.operands + functor.scalars));
  };
  return op;
}

PointwiseOp of_rounded(const Functor& functor) {
  PointwiseOp op = as_is(functor);
  op.rounded = (1u << (functor.operands + functor.scalars)) - 1;
  return op;
}

PointwiseOp threshold(const Functor& functor) {
  PointwiseOp op = as_is(functor);
  op.rounded = 1u << 2;  // the value only: ATen compares with the threshold as given
  return op;
}

PointwiseOp of_masks(const Functor& functor) {
  PointwiseOp op = as_is(functor);
  op.mask_args = (1u << functor.operands) - 1;
  return op;
}

PointwiseOp by_mask(const Functor& functor) {
  PointwiseOp op = as_is(functor);
  op.mask_args = 1;
  return op;
}

PointwiseOp masked_fill(const Functor& functor) {
  PointwiseOp op;
  op.mask_args = 1u << 1;
  op.rounded = 1u << 2;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const Operand mask = body.tensor(args[1]);
    return body.op(functor, {mask, body.scalar(args[2]), self});
  };
  return op;
}

// self + alpha * other. As in ATen, there is no multiplication if alpha is 1.
PointwiseOp with_alpha(const Functor& functor) {
  PointwiseOp op;
  op.rounded = 1u << 2;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    Operand other = operand(body, args[1]);
    if (!is_number(args[2], 1)) other = body.op("mul", {body.scalar(args[2]), other});
    return body.op(functor, {self, other});
  };
  return op;
}

PointwiseOp number_with_alpha(const Functor& functor) {
  PointwiseOp op = with_alpha(functor);
  op.rounded |= 1u << 1;
  return op;
}

PointwiseOp reversed_with_alpha(const Functor& functor) {
  PointwiseOp op;
  op.rounded = 1u << 1 | 1u << 2;
  op.build = [=](BodyBuilder& body, const Args& args) {
    Operand self = body.tensor(args[0]);
    if (!is_number(args[2], 1)) self = body.op("mul", {body.scalar(args[2]), self});
    return body.op(functor, {body.scalar(args[1]), self});
  };
  return op;
}

// self + (value * tensor1) * tensor2, in ATen's order.
PointwiseOp add_multiple(const Functor& functor) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const Operand scaled = body.op("mul", {body.scalar(args[3]), body.tensor(args[1])});
    return body.op(functor, {self, body.op("mul", {scaled, body.tensor(args[2])})});
  };
  return op;
}

// self + (value * tensor1) / tensor2, in ATen's order.
PointwiseOp add_quotient(const Functor& functor) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const Operand scaled = body.op("mul", {body.scalar(args[3]), body.tensor(args[1])});
    return body.op(functor, {self, body.op("div", {scaled, body.tensor(args[2])})});
  };
  return op;
}

// With two bounds, a NaN among them is the result, as with clamp_min and clamp_max. A single one that is NaN is left to ATen: it does not
// clamp in LibTorch 2.11, and is the result in 2.15.
PointwiseOp clamp_to_given(const Functor& functor) {
  PointwiseOp op;
  op.may_be_none = op.rounded = 1u << 1 | 1u << 2;
  op.accepts = [](const Args& args) {
    if (is_none(args[1]) == is_none(args[2])) return !is_none(args[1]);
    return !is_nan(is_none(args[1]) ? args[2] : args[1]);
  };
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const auto where = [&](Operand is_beyond, Operand bound) { return body.op("where", {is_beyond, bound, self}); };
    if (is_none(args[1])) {
      const Operand most = body.scalar(args[2]);
      return where(body.op("gt", {self, most}), most);
    }
    const Operand least = body.scalar(args[1]);
    if (is_none(args[2])) return where(body.op("lt", {self, least}), least);
    return body.op(functor, {self, least, body.scalar(args[2])});
  };
  return op;
}

// For eps None, a negative number is passed, with which the functors do not clamp. They clamp as ATen does only if the lower bound is not
// above the upper one. In 16 bits ATen rounds 1 - eps too, which a kernel does not: near 1, where logit is steep, the results would differ.
PointwiseOp with_optional_eps(const Functor& functor) {
  PointwiseOp op;
  const size_t eps = functor.operands;
  op.may_be_none = 1u << eps;
  op.accepts = [=](const Args& args) {
    return is_none(args[eps]) || (args[eps].kind == Arg::Kind::Constant && args[eps].constant.toDouble() <= 0.5);
  };
  op.accepts_in_16_bits = [=](const Args& args, at::ScalarType) { return is_none(args[eps]) || args[eps].constant.toDouble() >= 0.125; };
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> all = operands(body, args, eps);
    all.push_back(is_none(args[eps]) ? body.number(-1) : body.scalar(args[eps]));
    return body.op(functor, std::move(all));
  };
  return op;
}

PointwiseOp gelu(const Functor& functor) {
  PointwiseOp op;
  const size_t approximate = functor.operands;
  op.accepts = [=](const Args& args) { return args[approximate].kind == Arg::Kind::Constant && args[approximate].constant.isString(); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    const bool by_tanh = args[approximate].constant.toStringRef() == "tanh";
    const FunctorName other = approximate == 1 ? FunctorName("gelu_tanh") : FunctorName("gelu_tanh_backward");
    return body.op(by_tanh ? other : FunctorName(functor), operands(body, args, approximate));
  };
  return op;
}

// The same results as the functor pow_scalar, which checks the exponent for every element: for bfloat16 that took twice ATen's time.
PointwiseOp power(const Functor& functor) {
  PointwiseOp op;
  op.rounded = 1u << 1;
  // ATen takes the root for all types but float16, whose pow() gives -0 and -inf other roots.
  op.accepts_in_16_bits = [](const Args& args, at::ScalarType type) {
    return type != at::kHalf || !(is_number(args[1], 0.5) || is_number(args[1], -0.5));
  };
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = operand(body, args[0]);
    if (is_number(args[1], 2)) return body.op("square", {self});
    if (is_number(args[1], 3)) return body.op("cube", {self});
    return body.op(functor, {self, body.scalar(args[1])});
  };
  return op;
}

// elu with a scale of 1 and an input scale of 1 / alpha.
PointwiseOp celu(const Functor& functor) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const Operand alpha = body.scalar(args[1]);
    const Operand input_scale = body.op("reciprocal", {alpha});
    return body.op(functor, {self, alpha, body.number(1), input_scale});
  };
  return op;
}

PointwiseOp elu_backward(const Functor& functor) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const bool from_result = args[4].constant.toBool();
    const Operand gradient = body.tensor(args[0]);
    const Operand self = body.tensor(args[5]);
    return body.op(from_result ? FunctorName("elu_backward_from_result") : FunctorName(functor),
                   {gradient, self, body.scalar(args[1]), body.scalar(args[2]), body.scalar(args[3])});
  };
  return op;
}

// grad * mask * scale, in ATen's order.
PointwiseOp dropout_backward(const Functor& functor) {
  PointwiseOp op;
  op.mask_args = 1u << 1;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand gradient = body.tensor(args[0]);
    const Operand kept = body.op("where", {body.tensor(args[1]), body.number(1), body.number(0)});
    return body.op(functor, {body.op("mul", {gradient, kept}), body.scalar(args[2])});
  };
  return op;
}

PointwiseOp bernoulli(const Functor& functor) {
  PointwiseOp op;
  op.counters = 0b111;
  op.accepts = [](const Args& args) { return args[3].constant.isDouble() && args[4].constant.isDouble(); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> all;
    for (size_t i = 0; i < 3; ++i) all.push_back(body.tensor(args[i]));
    all.push_back(body.number(bernoulli_threshold(args[3].constant.toDouble())));
    all.push_back(body.scalar(args[4]));
    return body.op(functor, std::move(all));
  };
  return op;
}

// A function of the tensor that comes first; the other arguments are those of bernoulli.
PointwiseOp philox_dropout(const Functor& functor) {
  PointwiseOp op;
  op.counters = 0b1110;
  op.accepts = [](const Args& args) { return args[4].constant.isDouble() && args[5].constant.isDouble(); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> all;
    for (size_t i = 1; i < 4; ++i) all.push_back(body.tensor(args[i]));
    all.push_back(body.number(bernoulli_threshold(args[4].constant.toDouble())));
    all.push_back(body.scalar(args[5]));
    const Operand noise = body.op(functor, std::move(all));
    return body.op("mul", {body.tensor(args[0]), noise});
  };
  return op;
}

PointwiseOp loss_backward(const Functor& functor) { return loss(functor, 1); }
PointwiseOp squared_loss_backward(const Functor& functor) { return loss(functor, 2); }

PointwiseOp weighted_loss_backward(const Functor& functor) {
  PointwiseOp op;
  op.may_be_none = 1u << 3;
  op.accepts = [](const Args& args) { return args[4].kind == Arg::Kind::Constant && args[4].constant.isInt(); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> all = operands(body, args, 3);
    all.push_back(norm_of_loss(body, args[1], args[4], 1));
    const Operand gradient = body.op(functor, std::move(all));
    return is_none(args[3]) ? gradient : body.op("mul", {gradient, body.tensor(args[3])});
  };
  return op;
}

PointwiseOp complex_add(const Functor& functor) { return complex_with_alpha(functor, false, 0, 1); }
PointwiseOp complex_sub(const Functor& functor) { return complex_with_alpha(functor, true, 0, 1); }
PointwiseOp complex_rsub(const Functor& functor) { return complex_with_alpha(functor, true, 1, 0); }

PointwiseOp complex_power(const Functor& functor) {
  PointwiseOp op;
  op.accepts = [](const Args& args) { return is_number(args[1], 1) || is_number(args[1], 2) || is_number(args[1], 3); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    Operand power = self;
    for (double exponent = 1; !is_number(args[1], exponent); ++exponent) power = body.op(functor, {power, self});
    return power;
  };
  return op;
}

}  // namespace hindcast::codegen::builders
