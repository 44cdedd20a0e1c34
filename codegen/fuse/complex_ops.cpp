#include "codegen/fuse/complex_ops.h"

#include "codegen/fuse/pointwise_table.h"
#include "base/fork.h"

namespace hindcast::codegen {
namespace {

using capture::Arg;
using Args = std::vector<Arg>;

// args[first] + sign * alpha * args[second], with ATen's product of complex numbers also where alpha is 1.
PointwiseOp with_alpha(bool subtracts, size_t first, size_t second) {
  PointwiseOp op;
  op.build = [=](BodyBuilder& body, const Args& args) {
    const Operand self = operand(body, args[first]), other = operand(body, args[second]);
    if (is_number(args[2], 1)) return body.op(subtracts ? "complex_sub" : "complex_add", {self, other});
    const Operand alpha = body.scalar(args[2]);
    return body.op("add_product", {self, subtracts ? body.op("neg", {alpha}) : alpha, other});
  };
  return op;
}

// The powers that ATen computes as products.
PointwiseOp power() {
  PointwiseOp op;
  op.accepts = [](const Args& args) { return is_number(args[1], 1) || is_number(args[1], 2) || is_number(args[1], 3); };
  op.build = [](BodyBuilder& body, const Args& args) {
    const Operand self = body.tensor(args[0]);
    Operand power = self;
    for (double exponent = 1; !is_number(args[1], exponent); ++exponent) power = body.op("mul", {power, self});
    return power;
  };
  return op;
}

PointwiseTable make_table() {
  PointwiseTable table = {
      {"aten::add.Tensor", with_alpha(false, 0, 1)},
      {"aten::add.Scalar", with_alpha(false, 0, 1)},
      {"aten::sub.Tensor", with_alpha(true, 0, 1)},
      {"aten::sub.Scalar", with_alpha(true, 0, 1)},
      {"aten::rsub.Scalar", with_alpha(true, 1, 0)},
      {"aten::mul.Tensor", with_masks(same_args("mul", 2), 0b11)},
      {"aten::mul.Scalar", same_args("mul", 2)},
      {"aten::div.Tensor", same_args("div", 2)},
      {"aten::div.Scalar", same_args("div", 2)},
      {"aten::neg", same_args("neg", 1)},
      {"aten::reciprocal", same_args("reciprocal", 1)},
      {"aten::pow.Tensor_Scalar", power()},
      {"aten::sgn", same_args("complex_sgn", 1)},
      {"aten::_conj_physical", same_args("conj", 1)},
      {"aten::tanh_backward", same_args("complex_tanh_backward", 2)},
      {"aten::sigmoid_backward", same_args("complex_sigmoid_backward", 2)},
      {"aten::masked_fill.Scalar", masked_fill()},
      {"aten::where.self", with_masks(same_args("where", 3), 0b1)},
      {"aten::logical_not", gives_mask(same_args("logical_not", 1))},
  };
  for (const char* name : {"eq", "ne"}) {
    table.emplace(std::string("aten::") + name + ".Tensor", gives_mask(same_args(name, 2)));
    table.emplace(std::string("aten::") + name + ".Scalar", gives_mask(same_args(name, 2)));
  }
  for (const char* name : {"logical_and", "logical_or", "logical_xor"})
    table.emplace(std::string("aten::") + name, gives_mask(with_masks(same_args(name, 2), 0b11)));
  return table;
}

}  // namespace

const PointwiseOp* find_complex_op(const c10::OperatorName& name) {
  static const auto* table = base::first_use([] { return new PointwiseTable(make_table()); });
  return find(*table, name);
}

}  // namespace hindcast::codegen
