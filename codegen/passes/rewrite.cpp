#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::ValueId;

ValueId Rewrite::now(ValueId value) const {
  if (!value.defined()) return value;
  const auto found = instead.find(value.index);
  return found == instead.end() ? value : found->second;
}

ValueId Rewrite::add(const Graph& graph, capture::Value value) {
  new_values.push_back(std::move(value));
  return {static_cast<uint32_t>(graph.values.size() + new_values.size() - 1)};
}

Graph rewritten(const Graph& graph, const Rewrite& rewrite) {
  Graph result = graph;
  result.values.insert(result.values.end(), rewrite.new_values.begin(), rewrite.new_values.end());
  result.instrs.clear();
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    const auto others = rewrite.instead_of_instr.find(i);
    if (others != rewrite.instead_of_instr.end()) {
      result.instrs.insert(result.instrs.end(), others->second.begin(), others->second.end());
    } else if (!rewrite.gone.contains(i)) {
      result.instrs.push_back(graph.instrs[i]);
    }
  }
  const auto redirect = [&](ValueId& value) { value = rewrite.now(value); };
  const auto redirect_all = [&](std::vector<Arg>& args) {
    for (Arg& arg : args) {
      for (ValueId& value : arg.values) redirect(value);
    }
  };
  for (Instr& instr : result.instrs) {
    redirect_all(instr.args);
    for (ValueId& value : instr.inputs) redirect(value);
    for (auto& view : instr.views) redirect_all(view.args);
    redirect(instr.base);
  }
  // As many as before: boundaries say how many of them precede them.
  for (auto& event : result.buffer_events) redirect(event.value);
  result.verify();
  return result;
}

}  // namespace hindcast::codegen
