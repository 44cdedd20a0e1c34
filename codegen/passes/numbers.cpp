#include "codegen/passes/numbers.h"

#include "capture/graph/args.h"
#include "capture/graph/wrapped_number.h"

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::Value;

bool adds_to_16_bits(const Graph& graph, const Instr& instr) {
  if (instr.kind != capture::InstrKind::Op || instr.outputs.size() != 1 || !instr.outputs[0].defined()) return false;
  const std::string& name = instr.op->operator_name().name;
  if (name != "aten::add" && name != "aten::sub") return false;
  const Value& result = graph.values[instr.outputs[0].index];
  return (result.dtype == at::kBFloat16 || result.dtype == at::kHalf) && result.device.is_cpu();
}

}  // namespace

Rewrite numbers(const Graph& graph) {
  Rewrite rewrite;
  std::unordered_map<uint32_t, at::Scalar> numbers;  // by value
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    const Instr& instr = graph.instrs[i];
    if (const auto number = capture::wrapped_number(instr)) numbers.emplace(instr.outputs[0].index, *number);
    if (!adds_to_16_bits(graph, instr) || instr.args[1].kind != Arg::Kind::Value) continue;
    const auto number = numbers.find(instr.args[1].values[0].index);
    const auto op = number == numbers.end() ? std::nullopt : capture::overload_with_number(*instr.op);
    if (!op) continue;
    Instr& rebuilt = rewrite.rebuilt[i] = instr;
    rebuilt.op = op;
    rebuilt.args[1] = capture::constant(number->second);
    ++rewrite.reasons["numbers instead of tensors"];
  }
  return rewrite;
}

}  // namespace hindcast::codegen
