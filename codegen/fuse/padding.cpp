#include "codegen/fuse/padding.h"

#include "codegen/fuse/shapes.h"

#include <algorithm>

namespace hindcast::codegen {

using capture::Arg;
using capture::ExprId;
using capture::Graph;
using capture::Instr;
using capture::Value;
using capture::ValueId;

namespace {

std::optional<int64_t> number(const Arg& arg) {
  return arg.kind == Arg::Kind::Constant && arg.constant.isInt() ? std::optional(arg.constant.toInt()) : std::nullopt;
}

// (grad, sizes, dim, start, end, step)
std::optional<Padding> gradient_of_slice(const Instr& instr, const Value& result) {
  auto dim = number(instr.args[2]);
  if (!dim || number(instr.args[5]) != 1) return std::nullopt;
  if (*dim < 0) *dim += static_cast<int64_t>(result.sizes.size());
  Offset offset;
  offset.size = result.sizes.at(static_cast<size_t>(*dim));
  if (const auto start = number(instr.args[3])) {
    offset.number = *start;
  } else if (instr.args[3].kind == Arg::Kind::Int) {
    offset.start = instr.args[3].exprs[0];
  } else {
    return std::nullopt;
  }
  Padding padding{instr.args[0].values[0], std::vector<Offset>(result.sizes.size())};
  padding.offsets[static_cast<size_t>(*dim)] = offset;
  padding.is_whole = true;
  return padding;
}

// (self, pad, value): pad has two numbers for each dim, from the last dim on: the padding before and after it.
std::optional<Padding> pad(const Graph& graph, const Instr& instr, const Value& result) {
  const auto value = instr.args[2].kind == Arg::Kind::Constant && instr.args[2].constant.isScalar()
                         ? std::optional(instr.args[2].constant.toScalar())
                         : std::nullopt;
  if (!value || value->isComplex() || value->toDouble() != 0) return std::nullopt;
  std::vector<int64_t> numbers;
  if (instr.args[1].kind == Arg::Kind::Constant && instr.args[1].constant.isIntList()) numbers = instr.args[1].constant.toIntVector();
  if (instr.args[1].kind == Arg::Kind::IntList) {
    for (const ExprId expr : instr.args[1].exprs) {
      const auto constant = graph.symbols->constant(expr);
      if (!constant) return std::nullopt;
      numbers.push_back(*constant);
    }
  }
  if (numbers.empty() || numbers.size() > 2 * result.sizes.size()) return std::nullopt;
  Padding padding{instr.args[0].values[0], std::vector<Offset>(result.sizes.size())};
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) padding.offsets[result.sizes.size() - 1 - i / 2].number = numbers[i];
  padding.is_part = std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number <= 0; });
  padding.is_whole = std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number >= 0; });
  return padding;
}

}  // namespace

std::optional<Padding> padding_of(const Graph& graph, const Instr& instr) {
  if (instr.kind != capture::InstrKind::Op || instr.args.empty() || instr.args[0].kind != Arg::Kind::Value) return std::nullopt;
  if (instr.outputs.size() != 1 || !instr.outputs[0].defined() || !instr.args[0].values[0].defined()) return std::nullopt;
  const Value &source = graph.values[instr.args[0].values[0].index], &result = graph.values[instr.outputs[0].index];
  if (source.dtype != result.dtype || source.sizes.size() != result.sizes.size()) return std::nullopt;
  const std::string& name = instr.op->operator_name().name;
  if (name == "aten::slice_backward") return gradient_of_slice(instr, result);
  if (name == "aten::constant_pad_nd") return pad(graph, instr, result);
  return std::nullopt;
}

bool is_worth_reading_through(const Graph& graph, const Instr& instr, const CostModel& costs) {
  const auto numel = [&](ValueId id) { return hint_of_numel(*graph.symbols, graph.values[id.index].sizes); };
  return costs.is_padding_read_through(numel(instr.args[0].values[0]), numel(instr.outputs[0]));
}

}  // namespace hindcast::codegen
