#include "codegen/partition/op_classes.h"

#include "codegen/fuse/row_ops.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace hindcast::codegen {

using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

namespace {

// Not tagged as pointwise by LibTorch, and as cheap.
constexpr auto kCopies = std::to_array<std::string_view>({"_to_copy",
                                                          "arange",
                                                          "clone",
                                                          "copy",
                                                          "empty",
                                                          "empty_like",
                                                          "empty_strided",
                                                          "fill",
                                                          "full",
                                                          "full_like",
                                                          "lift_fresh_copy",
                                                          "masked_fill",
                                                          "new_empty",
                                                          "new_empty_strided",
                                                          "new_full",
                                                          "new_ones",
                                                          "new_zeros",
                                                          "ones",
                                                          "ones_like",
                                                          "scalar_tensor",
                                                          "tril",
                                                          "triu",
                                                          "where",
                                                          "zero",
                                                          "zeros",
                                                          "zeros_like"});
constexpr auto kReductions = std::to_array<std::string_view>(
    {"all", "amax", "amin", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "std_mean", "sum", "var", "var_mean"});
constexpr auto kProducts =
    std::to_array<std::string_view>({"addbmm", "addmm", "addmv", "baddbmm", "bmm", "dot", "linear", "matmul", "mm", "mv"});

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Without "aten::", and without the underscore of a write.
std::string_view plain_name(const Instr& instr) {
  std::string_view name = instr.op->operator_name().name;
  name.remove_prefix(name.find("::") + 2);
  while (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

bool is_product(std::string_view name) {
  return contains(kProducts, name) || name.find("convolution") != name.npos || name.find("attention") != name.npos;
}

struct Traffic {
  double operands = 0, results = 0;  // bytes
  double numels = 1;                 // of the first two operands and the first result, multiplied
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
  const std::string_view name = plain_name(instr);
  if (instr.op->hasTag(at::Tag::pointwise) || contains(kCopies, name)) return OpClass::Pointwise;
  if (contains(kReductions, name)) return OpClass::Reduction;
  if (find_row_op(*instr.op) != nullptr) return OpClass::Rows;
  if (name == "cat" || name == "stack") return OpClass::Concat;
  return is_product(name) ? OpClass::Product : OpClass::Other;
}

bool is_fusible(OpClass producer, OpClass consumer) {
  // Parts of a whole are written where they belong; a whole is not read part by part.
  if (consumer == OpClass::Concat) return true;
  const auto shares_kernels = [](OpClass op) { return op <= OpClass::Rows; };
  return shares_kernels(producer) && shares_kernels(consumer);
}

double cost_of(const JointUses& uses, uint32_t i, OpClass op_class) {
  constexpr double kBytesPerNs = 10, kFlopsPerNs = 50, kCall = 1000;
  if (op_class == OpClass::View) return 0;
  const Traffic traffic = traffic_of(uses, uses.instr(i));
  double cost = kCall + (traffic.operands + traffic.results) / kBytesPerNs;
  // Of m*k, k*n and m*n elements the root is m*k*n.
  if (op_class == OpClass::Product) cost += 2 * std::sqrt(traffic.numels) / kFlopsPerNs;
  return cost;
}

}  // namespace hindcast::codegen
