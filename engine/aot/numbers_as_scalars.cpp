#include "engine/aot/numbers_as_scalars.h"

#include "capture/graph/copy_graph.h"
#include "capture/graph/wrapped_number.h"

#include <set>
#include <unordered_map>

namespace hindcast::engine {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::ValueId;

namespace {

using Numbers = std::unordered_map<uint32_t, int64_t>;  // by value

std::optional<int64_t> number_of(const Instr& instr) {
  const auto number = capture::wrapped_number(instr);
  return number && number->isIntegral(false) ? std::optional(number->toLong()) : std::nullopt;
}

void take_number(Instr& instr, const Numbers& numbers) {
  if (instr.kind != capture::InstrKind::Op || instr.args.size() < 2 || instr.args[1].kind != Arg::Kind::Value) return;
  const auto number = numbers.find(instr.args[1].values[0].index);
  const auto op = number == numbers.end() ? std::nullopt : capture::overload_with_number(*instr.op);
  if (!op) return;
  instr.op = op;
  instr.args[1] = Arg{.constant = number->second};
}

bool may_take_number(const Instr& instr) {
  return instr.kind == capture::InstrKind::Op && instr.op && capture::overload_with_number(*instr.op);
}

std::set<uint32_t> used_values(const Graph& graph) {
  std::set<uint32_t> used;
  for (const Instr& instr : graph.instrs) for_each_use(instr, [&](ValueId value) { used.insert(value.index); });
  for (const Instr& instr : graph.instrs) {
    for (const capture::ViewStep& view : instr.views) {
      for (const Arg& arg : view.args) {
        for (const ValueId value : arg.values) used.insert(value.index);
      }
    }
  }
  for (const ValueId value : graph.outputs) used.insert(value.index);
  return used;
}

}  // namespace

capture::Joint with_numbers_as_scalars(const capture::Joint& joint) {
  const auto graph = std::make_shared<Graph>(*joint.graph);
  graph->symbols = joint.graph->symbols->copy();
  Numbers numbers;
  for (const Instr& instr : graph->instrs) {
    if (const auto number = number_of(instr)) numbers.emplace(instr.outputs[0].index, *number);
  }
  for (size_t i = 0; !numbers.empty() && i < graph->instrs.size(); ++i) {
    if (may_take_number(graph->instrs[i])) take_number(graph->instrs.edit(i), numbers);
  }
  const auto used = used_values(*graph);
  std::set<uint32_t> unused;
  for (uint32_t i = 0; i < graph->instrs.size(); ++i) {
    const Instr& instr = graph->instrs[i];
    if (number_of(instr) && !used.contains(instr.outputs[0].index)) unused.insert(i);
  }
  capture::Joint changed = joint;
  changed.forward_end -= static_cast<uint32_t>(std::distance(unused.begin(), unused.lower_bound(joint.forward_end)));
  graph->instrs.erase_all(unused);
  changed.graph = graph;
  return changed;
}

}  // namespace hindcast::engine
