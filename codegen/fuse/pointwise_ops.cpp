#include "codegen/fuse/pointwise_ops.h"

#include "codegen/fuse/pointwise_table.h"
#include "base/fork.h"

namespace hindcast::codegen {
namespace {

using capture::Arg;
using Args = std::vector<Arg>;

// self + alpha * other, as ATen: alpha 1 multiplies nothing.
PointwiseOp with_alpha(std::string_view function) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    Operand other = operand(body, args[1]);
    if (!is_number(args[2], 1)) other = body.op("mul", {body.scalar(args[2]), other});
    return body.op(function, {self, other});
  };
  return op;
}

PointwiseOp gelu_backward() {
  PointwiseOp op;
  op.accepts = [](const Args& args) { return args[2].kind == Arg::Kind::Constant && args[2].constant.isString(); };
  op.build = [](BodyBuilder& body, const Args& args) {
    const bool by_tanh = args[2].constant.toStringRef() == "tanh";
    const Operand gradient = body.tensor(args[0]);
    return body.op(by_tanh ? "gelu_tanh_backward" : "gelu_backward", {gradient, body.tensor(args[1])});
  };
  return op;
}

PointwiseOp logical(std::string_view function, size_t count) { return gives_mask(with_masks(same_args(function, count), 0b11)); }

// grad * mask * scale, in ATen's order.
PointwiseOp dropout_backward() {
  PointwiseOp op;
  op.mask_args = 1u << 1;
  op.build = [](BodyBuilder& body, const Args& args) {
    const Operand gradient = body.tensor(args[0]);
    const Operand kept = body.op("where", {body.tensor(args[1]), body.number(1), body.number(0)});
    return body.op("mul", {body.op("mul", {gradient, kept}), body.scalar(args[2])});
  };
  return op;
}

bool is_none(const Arg& arg) { return arg.kind == Arg::Kind::Constant && arg.constant.isNone(); }

PointwiseOp clamp() {
  PointwiseOp op;
  op.may_be_none = 1u << 1 | 1u << 2;
  op.accepts = [](const Args& args) { return !is_none(args[1]) || !is_none(args[2]); };
  op.build = [](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    if (is_none(args[1])) return body.op("clamp_max", {self, body.scalar(args[2])});
    const Operand least = body.scalar(args[1]);
    if (is_none(args[2])) return body.op("clamp_min", {self, least});
    return body.op("clamp", {self, least, body.scalar(args[2])});
  };
  return op;
}

// self + value * a * b, in ATen's order; `combine` is mul or div.
PointwiseOp add_product(std::string_view combine) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const Operand scaled = body.op("mul", {body.scalar(args[3]), body.tensor(args[1])});
    return body.op("add", {self, body.op(combine, {scaled, body.tensor(args[2])})});
  };
  return op;
}

PointwiseOp rsub_scalar() {
  PointwiseOp op;
  op.build = [](BodyBuilder& body, const Args& args) {
    Operand self = body.tensor(args[0]);
    if (!is_number(args[2], 1)) self = body.op("mul", {body.scalar(args[2]), self});
    return body.op("sub", {body.scalar(args[1]), self});
  };
  return op;
}

// A loss' gradient: grad, self, target, reduction, then `scalars`. at::Reduction: 0 none, 1 mean, 2 sum.
PointwiseOp loss_backward(std::string_view function, double numerator, size_t scalars) {
  PointwiseOp op;
  op.accepts = [](const Args& args) { return args[3].kind == Arg::Kind::Constant && args[3].constant.isInt(); };
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < 3; ++i) operands.push_back(body.tensor(args[i]));
    const bool is_mean = args[3].constant.toInt() == 1;
    operands.push_back(is_mean ? body.inverse_of(body.domain(), numerator) : body.number(numerator));
    for (size_t i = 0; i < scalars; ++i) operands.push_back(body.scalar(args[4 + i]));
    return body.op(function, std::move(operands));
  };
  return op;
}

PointwiseOp elu_backward() {
  PointwiseOp op;
  op.build = [](BodyBuilder& body, const Args& args) {
    const bool from_result = args[4].constant.toBool();
    const Operand gradient = body.tensor(args[0]);
    const Operand self = body.tensor(args[5]);
    return body.op(from_result ? "elu_backward_from_result" : "elu_backward",
                   {gradient, self, body.scalar(args[1]), body.scalar(args[2]), body.scalar(args[3])});
  };
  return op;
}

PointwiseOp logit_backward() {
  PointwiseOp op;
  op.may_be_none = 1u << 2;
  op.build = [](BodyBuilder& body, const Args& args) {
    const Operand gradient = body.tensor(args[0]);
    const Operand self = body.tensor(args[1]);
    return body.op("logit_backward", {gradient, self, is_none(args[2]) ? body.number(-1) : body.scalar(args[2])});
  };
  return op;
}

PointwiseTable make_table() {
  PointwiseTable table = {
      {"aten::add.Tensor", with_alpha("add")},
      {"aten::add.Scalar", with_alpha("add")},
      {"aten::sub.Tensor", with_alpha("sub")},
      {"aten::sub.Scalar", with_alpha("sub")},
      {"aten::mul.Tensor", with_masks(same_args("mul", 2), 0b11)},
      {"aten::mul.Scalar", same_args("mul", 2)},
      {"aten::div.Tensor", same_args("div", 2)},
      {"aten::div.Scalar", same_args("div", 2)},
      {"aten::tanh_backward", same_args("tanh_backward", 2)},
      {"aten::sigmoid_backward", same_args("sigmoid_backward", 2)},
      {"aten::silu_backward", same_args("silu_backward", 2)},
      {"aten::threshold_backward", same_args("threshold_backward", 3)},
      {"aten::gelu_backward", gelu_backward()},
      {"aten::masked_fill.Scalar", masked_fill()},
      {"aten::where.self", with_masks(same_args("where", 3), 0b1)},
      {"aten::native_dropout_backward", dropout_backward()},
      {"aten::leaky_relu_backward", same_args("leaky_relu_backward", 3)},
      {"aten::hardtanh_backward", same_args("hardtanh_backward", 4)},
      {"aten::hardswish_backward", same_args("hardswish_backward", 2)},
      {"aten::hardsigmoid_backward", same_args("hardsigmoid_backward", 2)},
      {"aten::hardshrink_backward", same_args("hardshrink_backward", 3)},
      {"aten::softshrink_backward", same_args("softshrink_backward", 3)},
      {"aten::softplus_backward", same_args("softplus_backward", 4)},
      {"aten::mish_backward", same_args("mish_backward", 2)},
      {"aten::log_sigmoid_backward", same_args("log_sigmoid_backward", 3)},
      {"aten::elu_backward", elu_backward()},
      {"aten::logit_backward", logit_backward()},
      {"aten::pow.Tensor_Scalar", same_args("pow_scalar", 2)},
      {"aten::minimum", same_args("minimum", 2)},
      {"aten::maximum", same_args("maximum", 2)},
      {"aten::clamp", clamp()},
      {"aten::clamp_min", same_args("clamp_min", 2)},
      {"aten::clamp_max", same_args("clamp_max", 2)},
      {"aten::addcmul", add_product("mul")},
      {"aten::addcdiv", add_product("div")},
      {"aten::rsub.Scalar", rsub_scalar()},
      {"aten::atan2", same_args("atan2", 2)},
      {"aten::mse_loss_backward", loss_backward("mse_loss_backward", 2, 0)},
      {"aten::smooth_l1_loss_backward", loss_backward("smooth_l1_backward", 1, 1)},
      {"aten::huber_loss_backward", loss_backward("huber_backward", 1, 1)},
      {"aten::logical_and", logical("logical_and", 2)},
      {"aten::logical_or", logical("logical_or", 2)},
      {"aten::logical_xor", logical("logical_xor", 2)},
      {"aten::logical_not", logical("logical_not", 1)},
      // Of bools: numbers that are no floats are left to ATen.
      {"aten::bitwise_and.Tensor", logical("logical_and", 2)},
      {"aten::bitwise_or.Tensor", logical("logical_or", 2)},
      {"aten::bitwise_xor.Tensor", logical("logical_xor", 2)},
      {"aten::bitwise_not", logical("logical_not", 1)},
  };
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    table.emplace(std::string("aten::") + name + ".Tensor", gives_mask(same_args(name, 2)));
    table.emplace(std::string("aten::") + name + ".Scalar", gives_mask(same_args(name, 2)));
  }
  for (const char* name :
       {"neg",  "abs",   "sqrt",  "rsqrt", "reciprocal", "exp", "log",  "sin",  "cos",  "tan",  "tanh", "sigmoid", "sgn",  "sign",
        "exp2", "expm1", "log1p", "log2",  "log10",      "erf", "erfc", "asin", "acos", "atan", "sinh", "cosh",    "relu", "silu"}) {
    table.emplace(std::string("aten::") + name, same_args(name, 1));
  }
  return table;
}

}  // namespace

const PointwiseOp* find_pointwise_op(const c10::OperatorName& name) {
  static const auto* table = base::first_use([] { return new PointwiseTable(make_table()); });
  return find(*table, name);
}

}  // namespace hindcast::codegen
