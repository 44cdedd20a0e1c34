#include "codegen/fuse/pointwise_table.h"

namespace hindcast::codegen {

using capture::Arg;

const PointwiseOp* find(const PointwiseTable& table, const c10::OperatorName& name) {
  const auto found = table.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == table.end() ? nullptr : &found->second;
}

bool is_number(const Arg& arg, double value) {
  return arg.kind == Arg::Kind::Constant && arg.constant.isScalar() && !arg.constant.toScalar().isComplex() &&
         arg.constant.toScalar().toDouble() == value;
}

Operand operand(BodyBuilder& body, const Arg& arg) { return arg.kind == Arg::Kind::Value ? body.tensor(arg) : body.scalar(arg); }

PointwiseOp same_args(std::string_view function, size_t count) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const std::vector<Arg>& args) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < count; ++i) operands.push_back(operand(body, args[i]));
    return body.op(function, std::move(operands));
  };
  return op;
}

PointwiseOp masked_fill() {
  PointwiseOp op;
  op.build = [](BodyBuilder& body, const std::vector<Arg>& args) {
    const Operand self = body.tensor(args[0]);
    const Operand mask = body.tensor(args[1]);
    return body.op("where", {mask, body.scalar(args[2]), self});
  };
  return with_masks(op, 1u << 1);
}

PointwiseOp with_masks(PointwiseOp op, uint32_t mask_args) {
  op.mask_args = mask_args;
  return op;
}

PointwiseOp gives_mask(PointwiseOp op) {
  op.gives_mask = true;
  return op;
}

}  // namespace hindcast::codegen
