#include "codegen/partition/op_classes.h"

#include "capture/ops/op_facts.h"
#include "codegen/fuse/row_ops.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <cmath>

namespace hindcast::codegen {

using capture::Instr;
using capture::InstrKind;
using capture::OpKind;
using capture::ValueId;

namespace {

bool is_product(const c10::OperatorName& op, OpKind kind) {
  const size_t name = op.name.find("::");  // the library's own name does not count: flash_attention::rotary is no attention
  return kind == OpKind::Product || op.name.find("convolution", name) != op.name.npos || op.name.find("attention", name) != op.name.npos;
}

struct Traffic {
  double operands = 0, results = 0;  // bytes
  double numels = 1;                 // product of the numels of the first two operands and the first result
};

Traffic traffic_of(const JointUses& uses, const Instr& instr) {
  Traffic traffic;
  uint32_t operands = 0;
  const auto numel = [&](ValueId value) {
    const double item = static_cast<double>(c10::elementSize(uses.graph().values[value.index].dtype));
    return std::max(1.0, static_cast<double>(uses.bytes_of(value)) / item);
  };
  capture::for_each_use(instr, [&](ValueId value) {
    if (!value.defined() || uses.bytes_of(value) == 0) return;
    traffic.operands += static_cast<double>(uses.bytes_of(value));
    if (operands++ < 2) traffic.numels *= numel(value);
  });
  for (const ValueId value : instr.outputs) {
    if (!value.defined() || uses.bytes_of(value) == 0) continue;
    if (traffic.results == 0) traffic.numels *= numel(value);
    traffic.results += static_cast<double>(uses.bytes_of(value));
  }
  return traffic;
}

}  // namespace

OpClass class_of(const JointUses& uses, uint32_t i) {
  const Instr& instr = uses.instr(i);
  const auto is_view = [&](ValueId value) { return value.defined() && uses.viewed_by(value).defined(); };
  if (std::any_of(instr.outputs.begin(), instr.outputs.end(), is_view)) return OpClass::View;
  if (instr.kind == InstrKind::AddGrads) return OpClass::Pointwise;
  if (!instr.op) return OpClass::Other;
  if (instr.op->hasTag(at::Tag::nondeterministic_seeded)) return OpClass::Random;
  if (uses.stays(i)) return OpClass::Other;
  const OpKind kind = capture::facts_of_functional(instr.op->operator_name()).kind;
  if (instr.op->hasTag(at::Tag::pointwise) || kind == OpKind::Copy) return OpClass::Pointwise;
  if (kind == OpKind::Reduction) return OpClass::Reduction;
  if (find_row_op(*instr.op) != nullptr) return OpClass::Rows;
  if (kind == OpKind::Concat) return OpClass::Concat;
  return is_product(instr.op->operator_name(), kind) ? OpClass::Product : OpClass::Other;
}

bool is_fusible(OpClass producer, OpClass consumer) {
  // A concat can be fused with its producers, which write its parts in place, but not with its consumers.
  if (consumer == OpClass::Concat) return true;
  const auto shares_kernels = [](OpClass op) { return op <= OpClass::Rows; };
  return shares_kernels(producer) && shares_kernels(consumer);
}

double cost_of(const JointUses& uses, uint32_t i, OpClass op_class) {
  constexpr double kBytesPerNs = 10, kFlopsPerNs = 50, kCall = 1000;
  if (op_class == OpClass::View) return 0;
  const Traffic traffic = traffic_of(uses, uses.instr(i));
  double cost = kCall + (traffic.operands + traffic.results) / kBytesPerNs;
  // The square root of (m*k) * (k*n) * (m*n) is m*k*n.
  if (op_class == OpClass::Product) cost += 2 * std::sqrt(traffic.numels) / kFlopsPerNs;
  return cost;
}

}  // namespace hindcast::codegen
