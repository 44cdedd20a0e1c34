#include "capture/graph/copy_graph.h"

namespace hindcast::capture {
namespace {

void copy_lists(std::vector<Arg>& args) {
  for (Arg& arg : args) {
    const c10::IValue& constant = arg.constant;
    if (constant.isIntList() || constant.isDoubleList() || constant.isBoolList() || constant.isString()) arg.constant = constant.deepcopy();
  }
}

std::shared_ptr<Graph> with_own_symbols(const Graph& graph) {
  auto copy = graph.copy();
  copy->symbols = std::make_shared<SymbolTable>(*graph.symbols);
  return copy;
}

}  // namespace

std::shared_ptr<const Graph> sharing_copy_of(const Graph& graph) { return with_own_symbols(graph); }

std::shared_ptr<const Graph> copy_of(const Graph& graph) {
  const auto copy = with_own_symbols(graph);
  copy->values.compact();
  copy->instrs.compact();
  for (size_t i = 0; i < copy->instrs.size(); ++i) {
    Instr& instr = copy->instrs.edit(i);
    copy_lists(instr.args);
    for (ViewStep& view : instr.views) copy_lists(view.args);
  }
  return copy;
}

}  // namespace hindcast::capture
