#include "codegen/passes/rewrite.h"

#include <algorithm>

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

namespace {

bool reads_replaced(const Instr& instr, const Rewrite& rewrite) {
  bool found = false;
  const auto look = [&](ValueId value) { found = found || rewrite.replacement_of(value) != value; };
  capture::for_each_use(instr, look);
  for (const auto& view : instr.views) {
    for (const Arg& arg : view.args) std::for_each(arg.values.begin(), arg.values.end(), look);
  }
  return found;
}

}  // namespace

std::shared_ptr<const Graph> rewritten(const Graph& graph, const Rewrite& rewrite) {
  const std::shared_ptr<Graph> copy = graph.copy();
  Graph& result = *copy;
  for (const auto& [i, instr] : rewrite.rebuilt) result.instrs.edit(i) = instr;
  for (const auto& [i, value] : rewrite.values) result.values.edit(i) = value;
  const auto redirect = [&](ValueId& value) { value = rewrite.replacement_of(value); };
  const auto redirect_all = [&](std::vector<Arg>& args) {
    for (Arg& arg : args) {
      for (ValueId& value : arg.values) redirect(value);
    }
  };
  for (size_t i = 0; i < result.instrs.size(); ++i) {
    if (!reads_replaced(result.instrs[i], rewrite)) continue;  // remains shared with `graph`
    Instr& instr = result.instrs.edit(i);
    redirect_all(instr.args);
    for (ValueId& value : instr.inputs) redirect(value);
    for (auto& view : instr.views) redirect_all(view.args);
    redirect(instr.base);
  }
  result.redirect([&](ValueId value) { return rewrite.replacement_of(value); });
  result.instrs.erase_all(rewrite.removed);
  result.verify();
  return copy;
}

}  // namespace hindcast::codegen
