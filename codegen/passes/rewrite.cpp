#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::ValueId;

ValueId Rewrite::replacement_of(ValueId value) const {
  if (!value.defined()) return value;
  const auto found = replaced.find(value.index);
  return found == replaced.end() ? value : found->second;
}

std::shared_ptr<const Graph> rewritten(const Graph& graph, const Rewrite& rewrite) {
  const std::shared_ptr<Graph> copy = graph.copy();
  Graph& result = *copy;
  for (const auto& [i, instr] : rewrite.rebuilt) result.instrs[i] = instr;
  const auto redirect = [&](ValueId& value) { value = rewrite.replacement_of(value); };
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
  result.redirect([&](ValueId value) { return rewrite.replacement_of(value); });
  uint32_t i = 0;
  std::erase_if(result.instrs, [&](const Instr&) { return rewrite.removed.contains(i++); });
  result.verify();
  return copy;
}

}  // namespace hindcast::codegen
