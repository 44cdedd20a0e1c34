#include "codegen/fuse/pointwise_ops.h"

#include <string>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using Args = std::vector<Arg>;

bool is_default(const Arg& arg, double value) {
  return arg.kind == Arg::Kind::Constant && arg.constant.isScalar() && arg.constant.toScalar().isFloatingPoint() == false &&
         arg.constant.toScalar().toDouble() == value;
}

// op(tensors..., then scalars...), each argument in its place.
PointwiseOp same_args(std::string_view function, size_t tensors, size_t scalars = 0) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < tensors + scalars; ++i) operands.push_back(i < tensors ? body.tensor(args[i]) : body.scalar(args[i]));
    return body.op(function, std::move(operands));
  };
  return op;
}

// self + alpha * other, as ATen: alpha 1 multiplies nothing.
PointwiseOp with_alpha(std::string_view function, bool other_is_tensor) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    Operand other = other_is_tensor ? body.tensor(args[1]) : body.scalar(args[1]);
    if (!is_default(args[2], 1)) other = body.op("mul", {body.scalar(args[2]), other});
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

PointwiseOp masked_fill() {
  PointwiseOp op;
  op.mask_args = 1u << 1;
  op.build = [](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    const Operand mask = body.tensor(args[1]);
    return body.op("where", {mask, body.scalar(args[2]), self});
  };
  return op;
}

PointwiseOp where() {
  PointwiseOp op = same_args("where", 3);
  op.mask_args = 1u << 0;
  return op;
}

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

std::unordered_map<std::string, PointwiseOp> make_table() {
  std::unordered_map<std::string, PointwiseOp> table = {
      {"aten::add.Tensor", with_alpha("add", true)},
      {"aten::add.Scalar", with_alpha("add", false)},
      {"aten::sub.Tensor", with_alpha("sub", true)},
      {"aten::sub.Scalar", with_alpha("sub", false)},
      {"aten::mul.Tensor", same_args("mul", 2)},
      {"aten::mul.Scalar", same_args("mul", 1, 1)},
      {"aten::div.Tensor", same_args("div", 2)},
      {"aten::div.Scalar", same_args("div", 1, 1)},
      {"aten::tanh_backward", same_args("tanh_backward", 2)},
      {"aten::sigmoid_backward", same_args("sigmoid_backward", 2)},
      {"aten::silu_backward", same_args("silu_backward", 2)},
      {"aten::threshold_backward", same_args("threshold_backward", 2, 1)},
      {"aten::gelu_backward", gelu_backward()},
      {"aten::masked_fill.Scalar", masked_fill()},
      {"aten::where.self", where()},
      {"aten::native_dropout_backward", dropout_backward()},
  };
  for (const char* name : {"neg", "abs", "sqrt", "rsqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "sigmoid"}) {
    table.emplace(std::string("aten::") + name, same_args(name, 1));
  }
  for (const char* name : {"aten::sin", "aten::cos"}) table.at(name).reduces_angles = true;
  return table;
}

}  // namespace

const PointwiseOp* find_pointwise_op(const c10::OperatorHandle& op) {
  static const auto* table = new std::unordered_map<std::string, PointwiseOp>(make_table());
  const auto& name = op.operator_name();
  const auto found = table->find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == table->end() ? nullptr : &found->second;
}

}  // namespace hindcast::codegen
